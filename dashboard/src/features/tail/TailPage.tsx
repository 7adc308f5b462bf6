import { Button, Drawer, MultiSelect, Select } from "@mantine/core";
import { BroadcastIcon, PlayIcon, TrashIcon } from "@primer/octicons-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { COLOURS } from "../../components/Chart";
import { ContentPart, HeaderTable } from "../../components/Content";
import { Empty, Page } from "../../components/Page";
import { Banner, Pill } from "../../components/Status";
import { path } from "../../lib/api";
import { shown } from "../../lib/decode";
import { bytes, clock, count, plural, quoted, rate, time } from "../../lib/format";
import { useStreams } from "../../lib/live";
import { usePrefs } from "../../lib/prefs";
import { useApi } from "../../lib/query";
import type { MessageRecord, Page as Listed, Topic } from "../../lib/types";
import { TailBuffer, type TailRow } from "./buffer";

const TOPICS_MAX = 8;
const ROW = 36;
const CAPS = ["10", "50", "200"];

interface TailData {
  items: MessageRecord[];
}

/** Messages of several topics as they arrive. */
export default function TailPage() {
  const [params, setParams] = useSearchParams();
  const topics = useMemo(() => [...new Set((params.get("topics") ?? "").split(",").filter(Boolean))].slice(0, TOPICS_MAX), [params]);
  const all = useApi<Listed<Topic>>("/topics", 10);
  const [cap, setCap] = useState("50");
  const [isHeld, setIsHeld] = useState(false);
  const [opened, setOpened] = useState<TailRow | null>(null);
  const [, setTick] = useState(0);
  const buffer = useRef(new TailBuffer(50));
  const arrived = useRef(new Map<string, number>());
  buffer.current.cap = Number(cap);
  buffer.current.topics = topics.length;
  const key = topics.join();
  useEffect(() => {
    buffer.current.clear();
    arrived.current.clear();
    setTick((tick) => tick + 1);
  }, [key]);
  const error = useStreams(topics.map((each) => `tail:${each}`), (snapshot) => {
    const data = snapshot.data as TailData;
    arrived.current.set(snapshot.stream, data.items.length + snapshot.dropped);
    buffer.current.take(snapshot.stream.slice("tail:".length), data.items, snapshot.dropped, Date.now(), isHeld);
    setTick((tick) => tick + 1);
  });
  const set = (next: string[]) => setParams(next.length === 0 ? {} : { topics: next.join() }, { replace: true });
  const { rows, dropped } = buffer.current;
  return (
    <Page
      title="Live tail" name="Live tail" command={`drmq consume ${quoted(topics[0] ?? "orders")} --from end --follow`}
      actions={topics.length > 0 && (
        <>
          <Button variant="default" leftSection={<TrashIcon size={16} />} onClick={() => { buffer.current.clear(); setTick((tick) => tick + 1); }}>Clear</Button>
          <Button variant={isHeld ? "filled" : "default"} leftSection={isHeld ? <PlayIcon size={16} /> : <PauseGlyph />} onClick={() => setIsHeld(!isHeld)} aria-pressed={isHeld}>{isHeld ? "Go on" : "Pause"}</Button>
        </>
      )}
    >
      <section className="card flush" aria-label="Live tail">
        <div className="filters" style={{ padding: 16 }}>
          <MultiSelect
            label="Topics" placeholder={topics.length === 0 ? "Choose topics" : undefined} searchable clearable maxValues={TOPICS_MAX} value={topics} onChange={set} limit={50}
            data={[...new Set([...(all.data?.items ?? []).map((each) => each.name), ...topics])]} style={{ flex: "3 1 260px" }}
            clearButtonProps={{ "aria-label": "Remove all topics" }}
          />
          <Select label="At most" allowDeselect={false} value={cap} onChange={(value) => setCap(value ?? "50")} data={CAPS.map((each) => ({ value: each, label: `${each} a second` }))} style={{ flex: "0 1 150px" }} />
        </div>
        {error && <div style={{ padding: "0 16px 16px" }}><Banner tone="warn"><strong>No tail.</strong> {error}</Banner></div>}
        {topics.length === 0 ? (
          <Empty icon={BroadcastIcon} title="No topic chosen" command="drmq consume orders --from end --follow">
            Choose one or several topics above: their messages appear here as they are written.
          </Empty>
        ) : rows.length === 0 ? (
          <Empty icon={BroadcastIcon} title={isHeld ? "Paused" : "Waiting for messages"} command={`drmq produce ${quoted(topics[0]!)} --value hello`}>
            {isHeld ? "Messages that arrive meanwhile are counted, and not shown." : "Those that are written from now on appear here."}
          </Empty>
        ) : (
          <Rows rows={rows} topics={topics} onOpen={setOpened} />
        )}
        <div className="card-head" style={{ borderTop: "1px solid var(--line)" }}>
          <span className="small muted" role="status">
            {topics.length === 0 ? "" : isHeld ? "Paused. " : `${rate([...arrived.current.values()].reduce((sum, each) => sum + each, 0))} now. `}
            {topics.length > 0 && `${plural(rows.length, "message")} shown`}
          </span>
          {dropped > 0 && <Pill tone="warn">{count(dropped)} dropped</Pill>}
        </div>
      </section>
      <Drawer opened={opened !== null} onClose={() => setOpened(null)} position="right" size="lg" closeButtonProps={{ "aria-label": "Close" }}
        title={opened && <strong>{opened.topic} {opened.record.partition}:{opened.record.offset}</strong>}>
        {opened && <Opened row={opened} />}
      </Drawer>
    </Page>
  );
}

function Rows({ rows, topics, onOpen }: { rows: TailRow[]; topics: string[]; onOpen: (row: TailRow) => void }) {
  const box = useRef<HTMLDivElement>(null);
  // Somebody who has scrolled down reads: what arrives waits above.
  const [kept, setKept] = useState<TailRow[] | null>(null);
  const list = kept ?? rows;
  const virtual = useVirtualizer({ count: list.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 12 });
  const fresh = kept === null ? 0 : rows.findIndex((each) => each.id <= (kept[0]?.id ?? 0));
  return (
    <div className="messages" style={{ position: "relative" }}>
      {kept !== null && fresh !== 0 && (
        <Button size="xs" className="tail-new" onClick={() => { box.current?.scrollTo(0, 0); setKept(null); }}>
          Show {fresh < 0 ? "the newest" : plural(fresh, "new message")}
        </Button>
      )}
      <div ref={box} style={{ height: "min(62vh, 640px)", overflow: "auto" }} tabIndex={0} role="log" aria-live="off" aria-label="Messages as they arrive, the newest first"
        onScroll={(event) => {
          const isDown = event.currentTarget.scrollTop > ROW;
          if (isDown && kept === null) setKept(rows);
          else if (!isDown && kept !== null) setKept(null);
        }}>
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map((item) => {
            const row = list[item.index]!;
            const { record } = row;
            return (
              <button key={row.id} className="tail-row" onClick={() => onOpen(row)} style={{ height: ROW, transform: `translateY(${item.start}px)` }}>
                <span className="muted nowrap">{clock(record.timestamp_ms)}</span>
                <span className="clip tail-topic"><span className="tail-dot" style={{ background: `var(--chart-${(topics.indexOf(row.topic) % COLOURS) + 1})` }} aria-hidden />{row.topic}</span>
                <span className="mono muted nowrap wide">{record.partition}:{record.offset}</span>
                <span className="mono clip wide">{record.key === null ? <em className="muted">null</em> : shown({ text: record.key.slice(0, 120), format: record.key_format }, "auto", false)}</span>
                <span className="mono clip">{record.value === null ? <em className="muted">null</em> : shown({ text: record.value.slice(0, 400), format: record.value_format }, "auto", false).slice(0, 400)}</span>
              </button>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function Opened({ row }: { row: TailRow }) {
  const { time: style } = usePrefs();
  const { record, topic } = row;
  return (
    <div className="stack">
      <dl className="facts">
        <div><dt>Topic</dt><dd><Link to={`${path`/topics/${topic}`}?partition=${record.partition}&order=oldest&from=${record.offset}`}>{topic}</Link></dd></div>
        <div><dt>Partition</dt><dd>{record.partition}</dd></div>
        <div><dt>Offset</dt><dd>{record.offset}</dd></div>
        <div><dt>Time</dt><dd>{time(record.timestamp_ms, style)}</dd></div>
        <div><dt>Size</dt><dd>{bytes(record.size_bytes)}</dd></div>
      </dl>
      <ContentPart name="Key" text={shown({ text: record.key, format: record.key_format }, "auto")} isNull={record.key === null} format={record.key_format} />
      <ContentPart name="Value" text={shown({ text: record.value, format: record.value_format }, "auto")} isNull={record.value === null} format={record.value_format} />
      <HeaderTable headers={record.headers} />
    </div>
  );
}

function PauseGlyph() {
  return (
    <svg width={16} height={16} viewBox="0 0 16 16" fill="currentColor" aria-hidden>
      <rect x={4} y={3} width={2.5} height={10} rx={1} />
      <rect x={9.5} y={3} width={2.5} height={10} rx={1} />
    </svg>
  );
}
