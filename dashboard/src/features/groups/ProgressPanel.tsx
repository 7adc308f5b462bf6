import { PeopleIcon } from "@primer/octicons-react";
import { Link } from "react-router";
import { Bar } from "../../components/Bar";
import { Chart } from "../../components/Chart";
import { DataTable, type Column } from "../../components/DataTable";
import { isMark } from "../../components/Events";
import { Name } from "../../components/Name";
import { Card, Empty } from "../../components/Page";
import { path } from "../../lib/api";
import { count, duration, quoted, rate, short } from "../../lib/format";
import { useLive } from "../../lib/live";
import type { GroupDetail, GroupPartition } from "../../lib/types";
import { isLeaseGroup } from "./kinds";
import type { Trend } from "./trend";

const LAG = [{ series: "lag", label: "Records" }];
const RATES = [{ series: "done", label: "Done" }, { series: "arrived", label: "Arrive" }];

export function ProgressPanel({ detail, trend }: { detail: GroupDetail; trend: Trend }) {
  const { overview } = useLive();
  const marks = (overview?.events ?? []).filter(isMark);
  const isLease = isLeaseGroup(detail.group);
  const most = Math.max(1, ...detail.partitions.map((each) => each.lag ?? 0));
  const names = new Map(detail.members.map((each) => [each.member_id, each.client_id || each.member_id]));
  const columns: Column<GroupPartition>[] = [
    { name: "Topic", sort: (each) => `${each.topic}-${each.partition}`, cell: (each) => <Link to={path`/topics/${each.topic}`}><Name text={each.topic} /></Link> },
    { name: "Partition", right: true, sort: (each) => each.partition, cell: (each) => each.partition },
    { name: "Lag", sort: (each) => each.lag, cell: (each) => (each.lag === null ? "–" : <Bar share={each.lag / most} text={count(each.lag)} />) },
    { name: isLease ? "First open" : "Position", right: true, sort: (each) => each.committed, cell: (each) => count(each.committed) },
    { name: "End", right: true, sort: (each) => each.end_offset, cell: (each) => count(each.end_offset) },
    ...(isLease
      ? [
          { name: "Leased", right: true, sort: (each: GroupPartition) => each.held, cell: (each: GroupPartition) => count(each.held) },
          { name: "To be retried", right: true, sort: (each: GroupPartition) => each.parked, cell: (each: GroupPartition) => count(each.parked) },
        ]
      : [{ name: "Member", cell: (each: GroupPartition) => (each.member === null ? <span className="muted">none</span> : <span className="mono" title={each.member}>{names.get(each.member) ?? each.member}</span>) }]),
  ];
  return (
    <div className="stack">
      <div className="grid-2">
        <Chart title="Lag" lines={LAG} isWhole format={(value) => short(value)} events={marks} source={trend.source} />
        <Chart title="Records per second" lines={RATES} format={(value) => rate(value)} events={marks} source={trend.source} />
      </div>
      <Card title="Partitions" flush extra={detail.group.lag_ms !== null && (detail.group.lag ?? 0) > 0 && <span className="small muted">The oldest open record is {duration(detail.group.lag_ms)} old</span>}>
        {detail.partitions.length === 0 ? (
          <Empty icon={PeopleIcon} title="No positions yet" command={`drmq consume orders --follow ${isLease ? "--lease " : ""}--group ${quoted(detail.group.group_id)}`}>
            The group has not read anything, and has no partitions.
          </Empty>
        ) : (
          <DataTable label="Partitions" columns={columns} rows={detail.partitions} rowKey={(each) => `${each.topic}-${each.partition}`} sortBy="Topic" />
        )}
      </Card>
    </div>
  );
}
