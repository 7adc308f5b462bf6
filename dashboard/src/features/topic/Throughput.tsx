import { useEffect, useMemo, useRef, useState } from "react";
import { Bar } from "../../components/Bar";
import { Chart } from "../../components/Chart";
import { DataTable, type Column } from "../../components/DataTable";
import { isMark } from "../../components/Events";
import { Card, ProblemBox } from "../../components/Page";
import { path } from "../../lib/api";
import { bytes, count, rate } from "../../lib/format";
import { useLive } from "../../lib/live";
import { useApi } from "../../lib/query";
import type { Page as Listed, Partition } from "../../lib/types";
import { watched } from "../../lib/watched";

const RECORDS = [{ series: "records", label: "Written" }];
const BYTES = [{ series: "bytes", label: "Growth of the log" }];
const GAP_S = 30;

interface Row {
  partition: number;
  rate: number | null;
  end_offset: number | null;
  size_bytes: number | null;
}

/** What is written to a topic each second, from the ends of its partitions while the page is open. */
export function Throughput({ topic }: { topic: string }) {
  const query = useApi<Listed<Partition>>(path`/topics/${topic}/partitions`, 2);
  const { overview } = useLive();
  const source = useMemo(() => watched(`topic ${topic}`), [topic]);
  const before = useRef<{ atMs: number; partitions: Partition[] } | null>(null);
  const [rows, setRows] = useState<Row[]>([]);
  const at = query.dataUpdatedAt;
  const items = query.data?.items;
  useEffect(() => {
    if (!items || at === 0 || before.current?.atMs === at) return;
    const last = before.current;
    before.current = { atMs: at, partitions: items };
    const seconds = last ? (at - last.atMs) / 1000 : Infinity;
    const ends = new Map(last?.partitions.map((each) => [each.partition, each]));
    const found = items.map((each) => {
      const old = ends.get(each.partition);
      const known = old && seconds < GAP_S && each.end_offset !== null && old.end_offset !== null;
      return { ...each, rate: known ? Math.max(0, (each.end_offset! - old.end_offset!) / seconds) : null };
    });
    const sizes = (of: Partition[]) => of.reduce((sum, each) => sum + (each.size_bytes ?? 0), 0);
    setRows(found);
    source.push(at, {
      records: last && seconds < GAP_S ? found.reduce((sum, each) => sum + (each.rate ?? 0), 0) : null,
      bytes: last && seconds < GAP_S ? Math.max(0, (sizes(items) - sizes(last.partitions)) / seconds) : null,
    });
  }, [items, at, source]);
  const marks = (overview?.events ?? []).filter(isMark);
  const most = Math.max(0.001, ...rows.map((each) => each.rate ?? 0));
  const columns: Column<Row>[] = [
    { name: "Partition", sort: (each) => each.partition, cell: (each) => each.partition },
    { name: "Written", sort: (each) => each.rate, cell: (each) => <Bar share={(each.rate ?? 0) / most} text={rate(each.rate)} /> },
    { name: "End", right: true, sort: (each) => each.end_offset, cell: (each) => count(each.end_offset) },
    { name: "Size", right: true, sort: (each) => each.size_bytes, cell: (each) => bytes(each.size_bytes) },
  ];
  return (
    <div className="stack">
      {query.error && <ProblemBox error={query.error} />}
      <div className="grid-2">
        <Chart title="Records written" lines={RECORDS} format={(value) => rate(value)} events={marks} source={source} />
        <Chart title="Bytes written" lines={BYTES} format={(value) => (value === null || value === undefined ? "–" : `${bytes(value)}/s`)} isBinary events={marks} source={source} />
      </div>
      <Card title="By partition" flush>
        <DataTable label="By partition" columns={columns} rows={rows} rowKey={(each) => String(each.partition)} sortBy="Partition" />
      </Card>
    </div>
  );
}
