import { Button, Collapse, Select, TextInput } from "@mantine/core";
import { DownloadIcon, FilterIcon, InboxIcon, SearchIcon, SyncIcon, XIcon } from "@primer/octicons-react";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState, type FormEvent } from "react";
import { useSearchParams } from "react-router";
import { Empty, ProblemBox } from "../../components/Page";
import { get, path } from "../../lib/api";
import { shown, type Form, FORMS } from "../../lib/decode";
import { bytes, count, plural, quoted, time } from "../../lib/format";
import { usePrefs } from "../../lib/prefs";
import { client } from "../../lib/query";
import type { MessageRecord, RecordPage } from "../../lib/types";
import { asJson, MessageDrawer } from "./MessageDrawer";
import { isFiltered, PAGE, readSearch, requestQuery, writeSearch, type Search } from "./search";

export function Messages({ topic, partitions }: { topic: string; partitions: number }) {
  const [params, setParams] = useSearchParams();
  const search = useMemo(() => readSearch(params), [params]);
  const form = formOf(params.get("as"));
  const keyForm = formOf(params.get("keyAs"));
  const [opened, setOpened] = useState<number | null>(null);
  const [isStopped, setIsStopped] = useState(false);
  const [wanted, setWanted] = useState(PAGE);
  const query = useInfiniteQuery({
    queryKey: ["records", topic, writeSearch(search).toString()],
    queryFn: ({ pageParam, signal }) => get<RecordPage>(`${path`/topics/${topic}/records`}?${requestQuery(search, pageParam)}`, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    gcTime: 30_000,
  });
  const pages = query.data?.pages ?? [];
  const rows = pages.flatMap((page) => page.items);
  const scanned = pages.reduce((sum, page) => sum + page.scanned, 0);
  const apply = (next: Search, as: Form = form, keyAs: Form = keyForm) => {
    const written = writeSearch(next);
    if (as !== "auto") written.set("as", as);
    if (keyAs !== "auto") written.set("keyAs", keyAs);
    setIsStopped(false);
    setParams(written);
  };
  // A search goes on until a page is full, all is scanned, or somebody stops it.
  const { hasNextPage, isFetching, fetchNextPage } = query;
  const goesOn = isFiltered(search) && !isStopped && hasNextPage && !query.error && rows.length < wanted;
  useEffect(() => {
    if (goesOn && !isFetching) void fetchNextPage();
  }, [goesOn, isFetching, fetchNextPage]);
  const isScanning = isFetching || goesOn;
  const stop = () => {
    setIsStopped(true);
    void client.cancelQueries({ queryKey: ["records", topic] });
  };
  const next = () => {
    setIsStopped(false);
    setWanted(rows.length + PAGE);
    void query.fetchNextPage();
  };
  return (
    <section className="card flush" aria-label="Messages">
      <Filters key={params.toString()} search={search} form={form} keyForm={keyForm} partitions={partitions} apply={apply} />
      {query.error && <div style={{ padding: 16 }}><ProblemBox error={query.error} /></div>}
      {query.data && rows.length === 0 && !isScanning && !query.hasNextPage ? (
        isFiltered(search) || search.from !== "" ? (
          <Empty icon={InboxIcon} title="Nothing found">
            {plural(scanned, "record")} scanned, none matches.
          </Empty>
        ) : (
          <Empty icon={InboxIcon} title="No messages yet" command={`drmq produce ${quoted(topic)} --key alice --value '{"total": 10}'`}>
            Send one in the tab Produce, or with this command.
          </Empty>
        )
      ) : (
        <Grid rows={rows} form={form} keyForm={keyForm} onOpen={setOpened} />
      )}
      <div className="card-head" style={{ borderTop: "1px solid var(--line)" }}>
        <span className="small muted" role="status">
          {isScanning ? "Scanning … " : ""}
          {plural(rows.length, "message")} found{isFiltered(search) ? `, ${count(scanned)} scanned` : ""}{query.data && !query.hasNextPage ? (rows.length === 0 && !isFiltered(search) ? "" : ", all of them") : isStopped ? ", stopped" : ""}
        </span>
        <span className="row">
          {isScanning && <Button size="xs" variant="default" leftSection={<XIcon size={14} />} onClick={stop}>Stop</Button>}
          {rows.length > 0 && <Button size="xs" variant="default" leftSection={<DownloadIcon size={14} />} onClick={() => download(topic, rows)}>Export</Button>}
          <Button size="xs" variant="default" leftSection={<SyncIcon size={14} />} onClick={() => void query.refetch()} disabled={query.isFetching}>Look again</Button>
          {(rows.length > 0 || query.hasNextPage) && (
            <Button size="xs" onClick={next} disabled={!query.hasNextPage} loading={query.isFetchingNextPage}>
              {rows.length === 0 ? "Search on" : "Next"}
            </Button>
          )}
        </span>
      </div>
      <MessageDrawer topic={topic} record={opened === null ? null : (rows[opened] ?? null)} form={form} keyForm={keyForm} onClose={() => setOpened(null)}
        onMove={(step) => setOpened((at) => (at === null ? at : Math.min(Math.max(at + step, 0), rows.length - 1)))} />
    </section>
  );
}

function formOf(text: string | null): Form {
  return FORMS.find((each) => each === text) ?? "auto";
}

/** The messages that were found, one JSON object per line. */
function download(topic: string, rows: MessageRecord[]): void {
  const lines = rows.map((row) => JSON.stringify(asJson(topic, row)));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "application/x-ndjson" }));
  link.download = `${topic}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function Filters(props: { search: Search; form: Form; keyForm: Form; partitions: number; apply: (search: Search, form?: Form, keyForm?: Form) => void }) {
  const { search, apply, partitions } = props;
  const [draft, setDraft] = useState(search);
  const [isMore, setIsMore] = useState(search.key !== "" || search.pattern !== "" || search.header !== "" || search.json !== "" || props.keyForm !== "auto");
  const change = (part: Partial<Search>) => setDraft({ ...draft, ...part });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    apply(draft);
  };
  return (
    <form onSubmit={submit} style={{ padding: 16 }} role="search" aria-label="Search for messages">
      <div className="filters">
        <TextInput label="Text" placeholder="Any text" title="In the key or the value" leftSection={<SearchIcon size={14} />} value={draft.text} data-search
          onChange={(event) => change({ text: event.currentTarget.value })} />
        <Select label="Order" allowDeselect={false} value={draft.order}
          data={[{ value: "newest", label: "Newest first" }, { value: "oldest", label: "Oldest first" }]}
          onChange={(value) => apply({ ...draft, order: value as Search["order"] })} />
        <TextInput label="From" placeholder="Offset, -10 or time" value={draft.from}
          onChange={(event) => change({ from: event.currentTarget.value })}
          title="earliest, latest, an offset, -10 for ten before the end, or a time like 2026-11-18 12:00" />
        <Select label="Partition" allowDeselect={false} value={draft.partition} searchable={partitions > 10}
          data={[{ value: "", label: "All" }, ...Array.from({ length: partitions }, (_, index) => ({ value: String(index), label: String(index) }))]}
          onChange={(value) => apply({ ...draft, partition: value ?? "" })} />
        <Select label="Values as" allowDeselect={false} value={props.form} data={FORMS.map((each) => ({ value: each, label: each }))}
          onChange={(value) => apply(draft, value as Form)} />
        <div className="row tight">
          <Button type="submit">Search</Button>
          <Button variant="subtle" color="gray" leftSection={<FilterIcon size={14} />} onClick={() => setIsMore(!isMore)} aria-expanded={isMore}>More</Button>
        </div>
      </div>
      <Collapse expanded={isMore}>
        <div className="filters" style={{ marginTop: 12 }}>
          <TextInput label="Key" description="Exactly" value={draft.key} onChange={(event) => change({ key: event.currentTarget.value })} />
          <TextInput label="Pattern" description="Regular expression in the value" value={draft.pattern} onChange={(event) => change({ pattern: event.currentTarget.value })} />
          <TextInput label="Header" description="name or name=value" value={draft.header} onChange={(event) => change({ header: event.currentTarget.value })} />
          <TextInput label="JSON fields" description="total >= 10 and user.country = DE" value={draft.json} onChange={(event) => change({ json: event.currentTarget.value })} style={{ flex: "2 1 240px" }} />
          <Select label="Keys as" description="How keys are shown" allowDeselect={false} value={props.keyForm} data={FORMS.map((each) => ({ value: each, label: each }))}
            onChange={(value) => apply(draft, props.form, value as Form)} />
        </div>
      </Collapse>
    </form>
  );
}

const ROW = 40;
const PREVIEW = 300;

function Grid({ rows, form, keyForm, onOpen }: { rows: MessageRecord[]; form: Form; keyForm: Form; onOpen: (index: number) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const { time: style } = usePrefs();
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 10 });
  const preview = (text: string | null, format: string, as: Form) =>
    text === null ? <em className="muted">null</em> : shown({ text: text.slice(0, PREVIEW * (format === "base64" ? 4 : 1)), format }, as === "hex" ? "base64" : as, false).slice(0, PREVIEW);
  // A page that got shorter must not leave the view below its end.
  useEffect(() => {
    if (rows.length === 0) box.current?.scrollTo(0, 0);
  }, [rows.length]);
  return (
    <div className="messages">
      <div className="message-row message-head" aria-hidden>
        <span>Place</span>
        <span className="wide">Time</span>
        <span className="wide">Key</span>
        <span>Value</span>
        <span className="num">Size</span>
      </div>
      <div ref={box} style={{ maxHeight: "62vh", overflow: "auto" }} tabIndex={0} role="region" aria-label="Messages found">
        <ul style={{ height: virtual.getTotalSize(), position: "relative", margin: 0, padding: 0, listStyle: "none" }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index]!;
            return (
              <li key={item.key} style={{ position: "absolute", top: 0, left: 0, width: "100%", height: ROW, transform: `translateY(${item.start}px)` }}>
                <button className="message-row" onClick={() => onOpen(item.index)}>
                  <span className="mono nowrap"><span className="visually-hidden">Message </span>{row.partition}:{row.offset}</span>
                  <span className="wide nowrap muted">{time(row.timestamp_ms, style)}</span>
                  <span className="wide clip mono">{preview(row.key, row.key_format, keyForm)}</span>
                  <span className="clip mono">{row.value_format === "base64" && (form === "auto" || form === "hex" || form === "base64") && <span className="tag">base64</span>} {preview(row.value, row.value_format, form)}</span>
                  <span className="num muted">{bytes(row.size_bytes)}</span>
                </button>
              </li>
            );
          })}
        </ul>
      </div>
    </div>
  );
}
