import { ActionIcon, Button, Drawer, SegmentedControl } from "@mantine/core";
import { ChevronDownIcon, ChevronUpIcon, CopyIcon } from "@primer/octicons-react";
import { useMemo, useState } from "react";
import { Link } from "react-router";
import { CommandLine, copyText } from "../../components/CommandLine";
import { ContentPart, HeaderTable } from "../../components/Content";
import { JsonTree, readTree } from "../../components/JsonTree";
import { Pill } from "../../components/Status";
import { path } from "../../lib/api";
import { shown, type Form } from "../../lib/decode";
import { bytes, time } from "../../lib/format";
import { usePrefs } from "../../lib/prefs";
import type { MessageRecord } from "../../lib/types";
import { recordCommand } from "./search";

export function MessageDrawer(props: { topic: string; record: MessageRecord | null; form: Form; keyForm: Form; onClose: () => void; onMove: (step: number) => void }) {
  const { record, topic } = props;
  return (
    <Drawer
      opened={record !== null} onClose={props.onClose} position="right" size="lg" closeButtonProps={{ "aria-label": "Close" }}
      title={record && <strong>Message {record.partition}:{record.offset}</strong>}
    >
      {record && <Message topic={topic} record={record} form={props.form} keyForm={props.keyForm} onMove={props.onMove} />}
    </Drawer>
  );
}

function Message(props: { topic: string; record: MessageRecord; form: Form; keyForm: Form; onMove: (step: number) => void }) {
  const { topic, record, form, keyForm, onMove } = props;
  const { time: style } = usePrefs();
  const [isCopied, setIsCopied] = useState(false);
  const value = shown({ text: record.value, format: record.value_format }, form);
  const key = shown({ text: record.key, format: record.key_format }, keyForm);
  const [isTree, setIsTree] = useState(false);
  const tree = useMemo(() => (record.value !== null && record.value_format === "json" && (form === "auto" || form === "json") ? readTree(record.value) : undefined), [record, form]);
  const copy = () => {
    void copyText(JSON.stringify(asJson(topic, record), null, 2)).then(() => {
      setIsCopied(true);
      setTimeout(() => setIsCopied(false), 1500);
    });
  };
  return (
    <div className="stack">
      <div className="row between">
        <span className="row tight">
          <ActionIcon variant="default" onClick={() => onMove(-1)} aria-label="The message above"><ChevronUpIcon size={16} /></ActionIcon>
          <ActionIcon variant="default" onClick={() => onMove(1)} aria-label="The message below"><ChevronDownIcon size={16} /></ActionIcon>
        </span>
        <span className="row tight">
          <Button size="xs" variant="default" leftSection={<CopyIcon size={14} />} onClick={copy}>{isCopied ? "Copied" : "Copy as JSON"}</Button>
          {record.is_truncated ? (
            <Button size="xs" variant="default" disabled title="Only a part of the message is here">Send again</Button>
          ) : (
            <Button size="xs" variant="default" component={Link} to={path`/topics/${topic}/produce`}
              state={{ key: record.key, value: record.value, keyFormat: record.key_format, valueFormat: record.value_format, headers: record.headers }}>
              Send again
            </Button>
          )}
        </span>
      </div>
      <dl className="facts tight">
        <div><dt>Partition</dt><dd>{record.partition}</dd></div>
        <div><dt>Offset</dt><dd>{record.offset}</dd></div>
        <div><dt>Size</dt><dd>{bytes(record.size_bytes)}</dd></div>
        <div><dt>Time</dt><dd className="nowrap">{time(record.timestamp_ms, style)}</dd></div>
      </dl>
      {record.is_truncated && <div><Pill tone="warn">Only the first 64 KiB are shown; the command below prints all</Pill></div>}
      <ContentPart name="Key" text={key} isNull={record.key === null} format={keyForm === "auto" ? record.key_format : keyForm} />
      <ContentPart name="Value" text={value} isNull={record.value === null} format={form === "auto" ? record.value_format : form}
        extra={tree !== undefined && (
          <SegmentedControl size="xs" aria-label="How the value is shown" value={isTree ? "tree" : "text"} onChange={(chosen) => setIsTree(chosen === "tree")}
            data={[{ value: "text", label: "Text" }, { value: "tree", label: "Tree" }]} />
        )}>
        {isTree && tree !== undefined && <JsonTree key={`${record.partition}-${record.offset}`} value={tree} />}
      </ContentPart>
      <HeaderTable headers={record.headers} />
      <CommandLine command={recordCommand(topic, record.partition, record.offset)} />
    </div>
  );
}

/** A record for programs: JSON stays JSON, everything else is text. */
export function asJson(topic: string, record: MessageRecord): unknown {
  const content = (text: string | null, format: string): unknown => {
    if (text === null || format !== "json") return text;
    try {
      return JSON.parse(text) as unknown;
    } catch {
      return text;
    }
  };
  return {
    topic,
    partition: record.partition,
    offset: record.offset,
    timestamp_ms: record.timestamp_ms,
    key: content(record.key, record.key_format),
    value: content(record.value, record.value_format),
    headers: record.headers,
  };
}
