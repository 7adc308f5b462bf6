import { ClockIcon } from "@primer/octicons-react";
import { Link } from "react-router";
import { Bar } from "../../components/Bar";
import { DataTable, type Column } from "../../components/DataTable";
import { Card, Empty, ProblemBox, useNow } from "../../components/Page";
import { Banner, Pill } from "../../components/Status";
import { Tile } from "../../components/Tile";
import { path } from "../../lib/api";
import { clock, count, duration, milliseconds, plural, quoted, rate } from "../../lib/format";
import { useLive } from "../../lib/live";
import { useApi } from "../../lib/query";
import type { GroupDetail, Lease, Leases } from "../../lib/types";

type Row = Lease & { records: number; until_ms: number };

/** What is out: with whom, until when, at which attempt. */
export function LeasesPanel({ group, detail }: { group: string; detail: GroupDetail }) {
  const query = useApi<Leases>(path`/groups/${group}/leases`, 1);
  const now = useNow(500);
  const { overview } = useLive();
  // The answer says how long each lease still lasts, so the clocks of the nodes do not matter.
  const rows = (query.data?.items ?? []).map((each) => ({ ...each, records: each.last_offset - each.first_offset + 1, until_ms: query.dataUpdatedAt + each.left_ms }));
  const sum = (of: Row[]) => of.reduce((total, each) => total + each.records, 0);
  const ends = rows.map((each) => each.until_ms);
  const longest = Math.max(1, ...ends.map((each) => each - now));
  const due = (query.data?.partitions ?? []).flatMap((each) => (each.next_due_ms === null ? [] : [each.next_due_ms]));
  const parked = (query.data?.partitions ?? []).reduce((total, each) => total + (each.parked ?? 0), 0);
  const clients = new Map(detail.members.map((each) => [each.member_id, each.client_id]));
  const columns: Column<Row>[] = [
    {
      name: "Records", sort: (each) => `${each.topic}-${each.partition}-${String(each.first_offset).padStart(16, "0")}`,
      cell: (each) => (
        <Link to={`${path`/topics/${each.topic}`}?partition=${each.partition}&order=oldest&from=${each.first_offset}`}>
          {each.topic}-{each.partition}:{each.first_offset}{each.last_offset > each.first_offset && `–${each.last_offset}`}
        </Link>
      ),
    },
    { name: "Count", right: true, sort: (each) => each.records, cell: (each) => count(each.records) },
    {
      name: "With", sort: (each) => clients.get(each.member) ?? each.member,
      cell: (each) => <span title={each.member}>{clients.get(each.member) || <span className="mono">{each.member.slice(0, 20)}</span>}{!clients.has(each.member) && <span className="muted"> (gone)</span>}</span>,
    },
    { name: "Attempt", right: true, sort: (each) => each.attempt, cell: (each) => (each.attempt > 1 ? <Pill tone="warn">{each.attempt}</Pill> : each.attempt) },
    {
      name: "Time left", sort: (each) => each.until_ms,
      cell: (each) => {
        const left = each.until_ms - now;
        return left <= 0 ? <Pill tone="warn">Ran out</Pill> : <Bar share={left / longest} text={left < 10_000 ? milliseconds(left) : duration(left)} tone={left < 5000 ? "warn" : ""} />;
      },
    },
    { name: "Until", right: true, sort: (each) => each.until_ms, cell: (each) => <span className="muted">{clock(each.until_ms)}</span> },
  ];
  return (
    <div className="stack">
      {query.error && <ProblemBox error={query.error} />}
      {query.data && !query.data.is_complete && <Banner tone="warn"><strong>Not complete:</strong> a node did not answer, so leases may be missing.</Banner>}
      <div className="tiles">
        <Tile label="Records leased" value={count(sum(rows))} hint={`in ${plural(rows.length, "lease")}`} />
        <Tile label="At a later attempt" value={count(sum(rows.filter((each) => each.attempt > 1)))} hint="they failed before" />
        <Tile label="Next to run out" value={ends.length === 0 ? "–" : duration(Math.max(0, Math.min(...ends) - now))} hint="if it is not renewed" />
        <Tile label="Next retry" value={due.length === 0 ? "–" : `in ${duration(Math.max(0, Math.min(...due) - now))}`} hint={`${plural(parked, "record")} to be retried`} />
        <Tile label="Ran out" value={rate(overview?.series.leases_expired)} hint="in all groups, now" />
      </div>
      <Card title="Leases" flush>
        {query.data && rows.length === 0 ? (
          <Empty icon={ClockIcon} title="No leases" command={`drmq consume ${quoted(detail.partitions[0]?.topic ?? "orders")} --lease --group ${quoted(group)}`}>
            {(detail.group.lag ?? 0) > 0 ? `${plural(detail.group.lag ?? 0, "record waits", "records wait")} for a worker.` : "Every record is done. A lease appears here while a worker has a record."}
          </Empty>
        ) : (
          <DataTable label="Leases" columns={columns} rows={rows} rowKey={(each) => `${each.topic}-${each.partition}-${each.first_offset}`} sortBy="Until" />
        )}
        {query.data?.is_truncated && <p className="muted small" style={{ margin: 0, padding: 16 }}>Only the first {count(rows.length)} leases are shown.</p>}
      </Card>
    </div>
  );
}
