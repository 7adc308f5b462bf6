import { Button, SegmentedControl, Select } from "@mantine/core";
import { ArrowSwitchIcon, GitMergeIcon } from "@primer/octicons-react";
import { useState } from "react";
import { Link, useSearchParams } from "react-router";
import { Chart } from "../../components/Chart";
import { DataTable, type Column } from "../../components/DataTable";
import { EventList, isMark } from "../../components/Events";
import { Name } from "../../components/Name";
import { Empty, Page, ProblemBox } from "../../components/Page";
import { Pill } from "../../components/Status";
import { path } from "../../lib/api";
import { count, quoted, rate } from "../../lib/format";
import { useLive } from "../../lib/live";
import { useApi } from "../../lib/query";
import { present } from "../../lib/raft";
import type { ClusterEvent, Page as Listed, RaftGroup, Replica, Topic } from "../../lib/types";
import { TransferDialog } from "./TransferDialog";

const PAGE = 200;
const VIEWS = ["distances", "placement", "elections"] as const;

export default function RaftPage() {
  const [params, setParams] = useSearchParams();
  const topic = params.get("topic") ?? "";
  const view = VIEWS.find((each) => each === params.get("view")) ?? "distances";
  const [moving, setMoving] = useState<RaftGroup | null>(null);
  const [cursors, setCursors] = useState<string[]>([]);
  const cursor = cursors.at(-1);
  const query = useApi<Listed<RaftGroup>>(
    `/raft?limit=${PAGE}${topic === "" ? "" : `&topic=${encodeURIComponent(topic)}`}${cursor === undefined ? "" : `&cursor=${cursor}`}`, 3,
  );
  const topics = useApi<Listed<Topic>>("/topics", 10);
  const { overview } = useLive();
  const rows = query.data?.items ?? [];
  const set = (name: string, value: string | null) => {
    setCursors([]);
    setParams((before) => {
      const next = new URLSearchParams(before);
      if (value) next.set(name, value);
      else next.delete(name);
      return next;
    }, { replace: true });
  };
  return (
    <Page title="Consensus" name="Consensus" command={topic === "" ? "drmq raft ls" : `drmq raft ls ${quoted(topic)}`} query={query}>
      <section className="card flush" aria-label="Raft groups">
        <div className="card-head">
          <Select aria-label="Topic" placeholder="All topics" clearable searchable value={topic === "" ? null : topic} onChange={(value) => set("topic", value)}
            data={(topics.data?.items ?? []).map((each) => each.name)} style={{ flex: "1 1 200px", maxWidth: 320 }} clearButtonProps={{ "aria-label": "All topics" }} />
          <SegmentedControl aria-label="View" value={view} onChange={(value) => set("view", value === "distances" ? null : value)}
            data={[{ value: "distances", label: "Distances" }, { value: "placement", label: "Placement" }, { value: "elections", label: "Elections" }]} />
        </div>
        {view === "elections" ? <Elections topic={topic} /> : query.data && rows.length === 0 ? (
          <Empty icon={GitMergeIcon} title="No Raft groups yet" command="drmq topic create orders --partitions 3">
            Each partition is a Raft group of its own: a leader, a term, and followers that copy its log.
          </Empty>
        ) : view === "placement" ? <Placement rows={rows} /> : <Distances rows={rows} onMove={setMoving} />}
        {view !== "elections" && (query.data?.next || cursors.length > 0) && (
          <div className="card-head" style={{ borderTop: "1px solid var(--line)", justifyContent: "flex-end" }}>
            <Button size="xs" variant="default" disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>Back</Button>
            <Button size="xs" variant="default" disabled={!query.data?.next} onClick={() => setCursors([...cursors, query.data!.next!])}>Next {PAGE}</Button>
          </div>
        )}
      </section>
      {view === "elections" && <Chart title="Elections per second" lines={ELECTIONS} format={(value) => rate(value)} events={(overview?.events ?? []).filter(isMark)} />}
      <TransferDialog group={present(moving, rows)} onClose={() => setMoving(null)} />
    </Page>
  );
}

const ELECTIONS_SHOWN = 100;
const ELECTIONS = [{ series: "elections", label: "Elections" }];

/** What the nodes said about leaders: each line names the cause. */
function Elections({ topic }: { topic: string }) {
  const query = useApi<Listed<ClusterEvent>>("/events?limit=1000&level=info", 3);
  const rows = (query.data?.items ?? []).filter((each) => /\b(elect|leader|leads|term|vote|candidate)/i.test(each.text) && (topic === "" || each.text.includes(topic)));
  if (query.error) return <div style={{ padding: 16 }}><ProblemBox error={query.error} /></div>;
  if (query.data && rows.length === 0) {
    return (
      <Empty icon={GitMergeIcon} title="No election among the last events" command="drmq raft transfer orders 0 --to 2">
        A leader changes when its node fails, or when leadership is moved. Each change is listed here with its cause.
      </Empty>
    );
  }
  return (
    <>
      <EventList events={rows.slice(0, ELECTIONS_SHOWN)} />
      {rows.length > ELECTIONS_SHOWN && <p className="muted small" style={{ margin: 0, padding: 16 }}>The last {ELECTIONS_SHOWN} of {count(rows.length)}; <Link to="/events">Events</Link> has all.</p>}
    </>
  );
}

function Distances({ rows, onMove }: { rows: RaftGroup[]; onMove: (group: RaftGroup) => void }) {
  const most = Math.max(1, ...rows.flatMap((row) => row.replicas.map((each) => each.lag ?? 0)));
  const columns: Column<RaftGroup>[] = [
    { name: "Group", sort: (each) => `${each.topic}-${each.partition}`, cell: (each) => <Link to={path`/topics/${each.topic}/partitions`}><Name text={`${each.topic}-${each.partition}`} /></Link> },
    { name: "Leader", sort: (each) => each.leader, cell: (each) => (each.leader === null ? <Pill tone="bad">None</Pill> : <Link to={`/brokers/${each.leader}`}>Node {each.leader}</Link>) },
    { name: "Followers behind", sort: (each) => Math.max(0, ...each.replicas.map((replica) => replica.lag ?? 0)), cell: (each) => <Followers group={each} most={most} /> },
    { name: "Term", right: true, sort: (each) => each.term, cell: (each) => count(each.term) },
    { name: "Committed to", right: true, sort: (each) => each.high_watermark, cell: (each) => (each.high_watermark < 0 ? "–" : count(each.high_watermark)) },
    {
      name: "Transfer", head: <span className="visually-hidden">Transfer</span>, right: true,
      cell: (each) => (each.replicas.length < 2 ? null : (
        <Button size="compact-xs" variant="subtle" leftSection={<ArrowSwitchIcon size={12} />} aria-label={`Move the leadership of ${each.topic}-${each.partition}`} onClick={() => onMove(each)}>Move</Button>
      )),
    },
  ];
  return <DataTable label="Distances of the followers" columns={columns} rows={rows} rowKey={(each) => `${each.topic}-${each.partition}`} sortBy="Group" />;
}

function Followers({ group, most }: { group: RaftGroup; most: number }) {
  const followers = group.replicas.filter((each) => each.role !== "leader");
  if (group.replicas.length === 0) return <Pill tone="warn">No answer from its leader</Pill>;
  if (followers.length === 0) return <span className="muted">no followers</span>;
  return (
    <div className="followers">
      {followers.map((each) => (
        <Follower key={each.node_id} replica={each} inSync={group.in_sync.includes(each.node_id)} most={most} />
      ))}
    </div>
  );
}

function Follower({ replica, inSync, most }: { replica: Replica; inSync: boolean; most: number }) {
  const share = (replica.lag ?? 0) / most;
  return (
    <div className="bar-cell" style={{ width: inSync ? 148 : 236 }}>
      <span className="nowrap">Node {replica.node_id}</span>
      <div className={`bar ${inSync ? "" : "warn"}`} aria-hidden><span style={{ width: `${share * 100}%` }} /></div>
      <span className={inSync ? "muted nowrap" : "tone-warn nowrap"}>{inSync ? count(replica.lag) : replica.lag === null ? "not in sync" : `${count(replica.lag)}, not in sync`}</span>
    </div>
  );
}

function Placement({ rows }: { rows: RaftGroup[] }) {
  const { overview } = useLive();
  const nodes = [...new Set([...(overview?.brokers ?? []).map((each) => each.node_id), ...rows.flatMap((row) => row.replicas.map((each) => each.node_id))])].sort((a, b) => a - b);
  const columns: Column<RaftGroup>[] = [
    { name: "Group", sort: (each) => `${each.topic}-${each.partition}`, cell: (each) => <Link to={path`/topics/${each.topic}/partitions`}><Name text={`${each.topic}-${each.partition}`} /></Link> },
    ...nodes.map((node): Column<RaftGroup> => ({
      name: `Node ${node}`,
      cell: (each) => {
        const found = each.replicas.find((replica) => replica.node_id === node);
        if (!found) return <span className="muted">·</span>;
        if (found.role === "leader") return <span className="cell lead">Leader</span>;
        return each.in_sync.includes(node) ? <span className="cell">Follower</span> : <span className="cell late">Behind</span>;
      },
    })),
  ];
  return <DataTable label="Placement of the replicas" columns={columns} rows={rows} rowKey={(each) => `${each.topic}-${each.partition}`} sortBy="Group" />;
}
