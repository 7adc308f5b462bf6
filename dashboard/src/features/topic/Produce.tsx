import { Button, Select, Textarea, TextInput } from "@mantine/core";
import { PaperAirplaneIcon } from "@primer/octicons-react";
import { useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useLocation } from "react-router";
import { CommandLine } from "../../components/CommandLine";
import { ProblemBox } from "../../components/Page";
import { Banner } from "../../components/Status";
import { call, path } from "../../lib/api";
import { quoted } from "../../lib/format";
import type { RecordHeader } from "../../lib/types";

interface Sent {
  partition: number;
  offset: number;
  timestamp_ms: number;
}
interface Again {
  key: string | null;
  value: string | null;
  valueFormat: string;
  keyFormat: string;
  headers: RecordHeader[];
}

export function Produce({ topic, partitions }: { topic: string; partitions: number }) {
  const again = useLocation().state as Again | null;
  const client = useQueryClient();
  const [key, setKey] = useState(again?.key ?? "");
  const [value, setValue] = useState(again?.value ?? "");
  const [form, setForm] = useState(again?.valueFormat === "base64" ? "base64" : "text");
  const [headers, setHeaders] = useState((again?.headers ?? []).map((each) => `${each.name}=${each.value ?? ""}`).join("\n"));
  const [partition, setPartition] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [sent, setSent] = useState<Sent | null>(null);
  const [error, setError] = useState<unknown>(null);
  const pairs = headers.split("\n").filter((each) => each.trim() !== "").map((each) => {
    const at = each.indexOf("=");
    return at < 0 ? { name: each.trim(), value: "" } : { name: each.slice(0, at).trim(), value: each.slice(at + 1) };
  });
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setIsBusy(true);
    setError(null);
    setSent(null);
    try {
      const record = {
        key: key === "" ? null : key,
        key_format: again?.keyFormat === "base64" && key === again.key ? "base64" : "text",
        value,
        value_format: form,
        headers: pairs,
        partition: partition === "" ? null : Number(partition),
      };
      const answer = await call<{ results: Sent[] }>("POST", path`/topics/${topic}/records`, { records: [record] });
      setSent(answer.results[0] ?? null);
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
        <Select label="Partition" description="By key if not chosen" allowDeselect={false} value={partition} onChange={(chosen) => setPartition(chosen ?? "")}
          data={[{ value: "", label: "By key" }, ...Array.from({ length: partitions }, (_, index) => ({ value: String(index), label: String(index) }))]} />
        <Select label="The value is" description="Base64 for bytes" allowDeselect={false} value={form} onChange={(chosen) => setForm(chosen ?? "text")}
          data={[{ value: "text", label: "text or JSON" }, { value: "base64", label: "base64" }]} />
      </div>
      <Textarea label="Value" autosize minRows={4} maxRows={16} value={value} onChange={(event) => setValue(event.currentTarget.value)} styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }} />
      <Textarea label="Headers" description="One per line: name=value" autosize minRows={1} maxRows={8} value={headers} onChange={(event) => setHeaders(event.currentTarget.value)} />
      {error !== null && <ProblemBox error={error} />}
      <div aria-live="polite">
        {sent && (
          <Banner tone="good">
            <strong>Committed</strong> to partition {sent.partition} at offset {sent.offset}, on disk at a majority of its replicas.{" "}
            <Link to={path`/topics/${topic}`}>See the messages</Link>
          </Banner>
        )}
      </div>
      <div className="row between">
        <Button type="submit" leftSection={<PaperAirplaneIcon size={16} />} loading={isBusy}>Send to {topic}</Button>
        {form === "text" && <CommandLine command={command} />}
      </div>
    </form>
  );
}
