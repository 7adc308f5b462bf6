import { Button, NumberInput, Select, Textarea, TextInput } from "@mantine/core";
import { PaperAirplaneIcon, SquareFillIcon } from "@primer/octicons-react";
import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState, type FormEvent } from "react";
import { Link, useLocation } from "react-router";
import { CommandLine } from "../../components/CommandLine";
import { ProblemBox } from "../../components/Page";
import { Banner } from "../../components/Status";
import { call, path } from "../../lib/api";
import { count, plural, quoted } from "../../lib/format";
import type { NewRecord, ProduceAnswer, RecordHeader, Sent } from "../../lib/types";
import { headerPairs, numbered } from "./produced";

interface Again {
  key: string | null;
  value: string | null;
  valueFormat: string;
  keyFormat: string;
  headers: RecordHeader[];
}

const REPEAT_MAX = 100_000;
/** Records of one request: each batch shows progress, and can be the last. */
const BATCH = 500;

export function Produce({ topic, partitions }: { topic: string; partitions: number }) {
  const again = useLocation().state as Again | null;
  const client = useQueryClient();
  const [key, setKey] = useState(again?.key ?? "");
  const [value, setValue] = useState(again?.value ?? "");
  const [form, setForm] = useState(again?.valueFormat === "base64" ? "base64" : "text");
  const [headers, setHeaders] = useState((again?.headers ?? []).map((each) => `${each.name}=${each.value ?? ""}`).join("\n"));
  const [partition, setPartition] = useState("");
  const [repeat, setRepeat] = useState<number | string>(1);
  const [isBusy, setIsBusy] = useState(false);
  const [sent, setSent] = useState<{ all: number; last: Sent; byPartition: Map<number, number> } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const isStopped = useRef(false);
  const pairs = headerPairs(headers);
  const times = Math.min(REPEAT_MAX, Math.max(1, Number(repeat) || 1));
  const record = (index: number): NewRecord => ({
    key: key === "" ? null : numbered(key, index),
    key_format: again?.keyFormat === "base64" && key === again.key ? "base64" : "text",
    value: form === "text" ? numbered(value, index) : value,
    value_format: form === "base64" ? "base64" : "text",
    headers: pairs,
    partition: partition === "" ? null : Number(partition),
  });
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setIsBusy(true);
    setError(null);
    setSent(null);
    isStopped.current = false;
    const byPartition = new Map<number, number>();
    try {
      for (let done = 0; done < times && !isStopped.current; ) {
        const records = Array.from({ length: Math.min(BATCH, times - done) }, (_, index) => record(done + index + 1));
        const answer = await call<ProduceAnswer>("POST", path`/topics/${topic}/records`, { records });
        done += answer.results.length;
        for (const each of answer.results) byPartition.set(each.partition, (byPartition.get(each.partition) ?? 0) + 1);
        setSent({ all: done, last: answer.results.at(-1)!, byPartition: new Map(byPartition) });
      }
      await client.invalidateQueries();
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  const command = [
    `drmq produce ${quoted(topic)}`,
    key && `--key ${quoted(key)}`,
    ...pairs.map((each) => `--header ${quoted(`${each.name}=${each.value}`)}`),
    partition && `-p ${partition}`,
    `--value ${quoted(value || "hello")}`,
  ].filter(Boolean).join(" ");
  return (
    <form className="card stack" onSubmit={(event) => void submit(event)} aria-label="Send a message">
      <div className="filters">
        <TextInput label="Key" description="Chooses the partition" value={key} onChange={(event) => setKey(event.currentTarget.value)} />
        <Select label="Partition" description="By key if not chosen" allowDeselect={false} value={partition} onChange={(chosen) => setPartition(chosen ?? "")} searchable={partitions > 10}
          data={[{ value: "", label: "By key" }, ...Array.from({ length: partitions }, (_, index) => ({ value: String(index), label: String(index) }))]} />
        <Select label="The value is" description="Base64 for bytes" allowDeselect={false} value={form} onChange={(chosen) => setForm(chosen ?? "text")}
          data={[{ value: "text", label: "text or JSON" }, { value: "base64", label: "base64" }]} />
        <NumberInput label="Repeat" description="{n} is the number of each" min={1} max={REPEAT_MAX} allowDecimal={false} value={repeat} onChange={setRepeat} />
      </div>
      <Textarea label="Value" autosize minRows={4} maxRows={16} value={value} onChange={(event) => setValue(event.currentTarget.value)} styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }} />
      <Textarea label="Headers" description="One per line: name=value" autosize minRows={1} maxRows={8} value={headers} onChange={(event) => setHeaders(event.currentTarget.value)} />
      {error !== null && <ProblemBox error={error} />}
      <div aria-live="polite">
        {sent && (
          <Banner tone="good">
            <strong>Committed</strong>{" "}
            {sent.all === 1
              ? `to partition ${sent.last.partition} at offset ${sent.last.offset}`
              : `${plural(sent.all, "message")}${isBusy ? ` of ${count(times)}` : ""}, the last to partition ${sent.last.partition} at offset ${sent.last.offset}`}
            , on disk at a majority of its replicas. <Link to={path`/topics/${topic}`}>See the messages</Link>
            {sent.byPartition.size > 1 && (
              <div className="small muted">{[...sent.byPartition].sort(([left], [right]) => left - right).slice(0, 12).map(([index, number]) => `partition ${index}: ${count(number)}`).join(", ")}</div>
            )}
          </Banner>
        )}
      </div>
      <div className="row between">
        <span className="row">
          <Button type="submit" leftSection={<PaperAirplaneIcon size={16} />} loading={isBusy}>Send {times > 1 ? `${count(times)} ` : ""}to {topic}</Button>
          {isBusy && times > BATCH && <Button variant="default" leftSection={<SquareFillIcon size={12} />} onClick={() => { isStopped.current = true; }}>Stop</Button>}
        </span>
        {form === "text" && times === 1 && <CommandLine command={command} />}
      </div>
    </form>
  );
}
