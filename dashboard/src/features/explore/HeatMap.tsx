import { Select, useComputedColorScheme } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { Card } from "../../components/Page";
import { get } from "../../lib/api";
import { clock, count, milliseconds } from "../../lib/format";
import { useLive } from "../../lib/live";
import type { BrokerDetail } from "../../lib/types";
import { bucketChange } from "./series";

const EVERY_MS = 2000;
const COLUMNS = 150;
const COLUMNS_MIN = 40;
const DURATION = "drmq_request_duration_us";

interface Column {
  atMs: number;
  buckets: number[];
}

const upper = (bucket: number) => milliseconds(2 ** bucket / 1000);

/** How long requests take, second by second: each column is a moment, each row twice the time of the one below. */
export function HeatMap() {
  const { overview } = useLive();
  const nodes = useMemo(() => (overview?.brokers ?? []).filter((each) => each.is_up).map((each) => each.node_id), [overview?.brokers]);
  const [api, setApi] = useState("PRODUCE");
  const details = useQueries({
    queries: nodes.map((node) => ({ queryKey: [`/brokers/${node}`], queryFn: ({ signal }: { signal: AbortSignal }) => get<BrokerDetail>(`/brokers/${node}`, signal), refetchInterval: EVERY_MS })),
  });
  const columns = useRef<Column[]>([]);
  const before = useRef<{ api: string; atMs: number; values: Map<number, number[]> } | null>(null);
  const [, setTick] = useState(0);
  const latest = Math.max(0, ...details.map((each) => each.dataUpdatedAt));
  const apis = [...new Set(details.flatMap((each) => (each.data?.counters ?? []).filter((one) => one.name === DURATION && one.value > 0).map((one) => one.labels.api ?? "")))].sort();
  useEffect(() => {
    if (latest === 0 || (before.current?.api === api && latest - before.current.atMs < EVERY_MS * 0.75)) return;
    const values = new Map(details.flatMap((each, index) => {
      const found = each.data?.counters.find((one) => one.name === DURATION && one.labels.api === api);
      return found ? [[nodes[index]!, found.buckets] as const] : [];
    }));
    if (before.current?.api !== api) columns.current = [];
    const change = bucketChange(before.current?.api === api ? before.current.values : null, values);
    before.current = { api, atMs: latest, values };
    if (change) columns.current = [...columns.current.slice(1 - COLUMNS), { atMs: latest, buckets: change }];
    setTick((tick) => tick + 1);
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [latest, api]);
  const all = columns.current;
  const sums = all.reduce<number[]>((sum, each) => { each.buckets.forEach((value, index) => { sum[index] = (sum[index] ?? 0) + value; }); return sum; }, []);
  const used = [...sums.keys()].filter((index) => (sums[index] ?? 0) > 0);
  const [low, high] = used.length === 0 ? [0, 0] : [Math.max(0, used[0]! - 1), used.at(-1)! + 1];
  return (
    <Card title="How long requests take" extra={<Select aria-label="Request" size="xs" allowDeselect={false} searchable value={api} onChange={(value) => setApi(value ?? "PRODUCE")} data={[...new Set([api, ...apis])]} />}>
      {used.length === 0 ? (
        <p className="muted" style={{ margin: 0 }}>No {api} request has been measured since this page was opened. A new column is drawn every two seconds.</p>
      ) : (
        <div className="stack" style={{ gap: 8 }}>
          <Canvas columns={all} low={low} high={high} label={`${api} requests by duration. ${used.map((index) => `Up to ${upper(index)}: ${count(sums[index])}.`).join(" ")}`} />
          <div className="small muted">{clock(all[0]!.atMs)} to {clock(all.at(-1)!.atMs)}. A stronger colour: more requests took so long.</div>
          <table className="table dense" aria-label={`${api} requests by duration`}>
            <thead><tr><th scope="col">Took up to</th><th scope="col" className="num">Requests</th></tr></thead>
            <tbody>{used.toReversed().map((index) => <tr key={index}><td>{upper(index)}</td><td className="num">{count(sums[index])}</td></tr>)}</tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function Canvas({ columns, low, high, label }: { columns: Column[]; low: number; high: number; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = useComputedColorScheme("light", { getInitialValueInEffect: false });
  useEffect(() => {
    const target = canvas.current;
    const context = target?.getContext("2d");
    if (!target || !context) return;
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [target.clientWidth, target.clientHeight];
    target.width = width * scale;
    target.height = height * scale;
    context.scale(scale, scale);
    const colour = getComputedStyle(document.documentElement).getPropertyValue("--chart-1").trim();
    const most = Math.max(1, ...columns.flatMap((each) => each.buckets));
    const [w, h] = [(width - 60) / Math.min(COLUMNS, Math.max(COLUMNS_MIN, columns.length)), height / (high - low + 1)];
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--chart-text").trim();
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    const step = Math.ceil((high - low + 1) / 8);
    for (let bucket = low; bucket <= high; bucket += step) context.fillText(upper(bucket), 0, height - (bucket - low + 0.5) * h);
    context.fillStyle = colour;
    columns.forEach((column, index) => {
      column.buckets.forEach((value, bucket) => {
        if (value === 0 || bucket < low || bucket > high) return;
        context.globalAlpha = 0.15 + 0.85 * Math.sqrt(value / most);
        context.fillRect(60 + index * w, height - (bucket - low + 1) * h, Math.ceil(w), h - 1);
      });
    });
    context.globalAlpha = 1;
  }, [columns, low, high, scheme]);
  return <canvas ref={canvas} className="heat" role="img" aria-label={label} />;
}
