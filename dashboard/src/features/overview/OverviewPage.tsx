import { Loader } from "@mantine/core";
import { PeopleIcon, StackIcon } from "@primer/octicons-react";
import { Link } from "react-router";
import { BrokerTable } from "../../components/BrokerTable";
import { Chart } from "../../components/Chart";
import { EventList, isFirstLeader, isMark } from "../../components/Events";
import { byTimeLag, recordsLag, TimeLag } from "../../components/Lag";
import { Name } from "../../components/Name";
import { Card, Empty, Page } from "../../components/Page";
import { Banner, Pill, toneOfGroup, type Tone } from "../../components/Status";
import { Tile } from "../../components/Tile";
import { path } from "../../lib/api";
import { bytes, count, milliseconds, plural, rate } from "../../lib/format";
import { useLive } from "../../lib/live";
import { useApi } from "../../lib/query";
import type { Cluster, Group, LetterTopic, Page as Listed } from "../../lib/types";

const TONES: Record<Cluster["status"], Tone> = { healthy: "good", degraded: "warn", down: "bad" };
const GROUPS_SHOWN = 5;
const EVENTS_SHOWN = 8;

const MESSAGES = [{ series: "produce_rate", label: "Produced" }, { series: "consume_rate", label: "Consumed" }];
const BYTES = [{ series: "produce_bytes", label: "Produced" }, { series: "consume_bytes", label: "Consumed" }];
const LATENCY = [{ series: "produce_p99_ms", label: "p99" }, { series: "produce_p50_ms", label: "p50" }];
const DURABLE = [{ series: "commit_p99_ms", label: "Commit" }, { series: "fsync_p99_ms", label: "Sync to disk" }];

const perSecond = (value: number | null | undefined) => rate(value);
const bytesPerSecond = (value: number | null | undefined) => (value === null || value === undefined ? "–" : `${bytes(value)}/s`);

export default function OverviewPage() {
  const { overview, receivedAt } = useLive();
  const groups = useApi<Listed<Group>>("/groups", 5);
  const letters = useApi<Listed<LetterTopic>>("/dead-letters", 5);
  if (overview === null) {
    return (
      <Page title="Overview" name="Overview">
        <Loader size="sm" role="status" aria-label="Waiting for the first sample" />
      </Page>
    );
  }
  const { cluster, brokers, series, events } = overview;
  const marks = events.filter(isMark);
  const waiting = letters.data?.items.reduce((sum, each) => sum + each.waiting, 0);
  const rows = groups.data?.items;
  return (
    <Page title="Overview" name="Overview" command="drmq status" updatedAt={receivedAt}>
      <Banner tone={TONES[cluster.status]}>
        <strong>{cluster.status.replace(/^./, (each) => each.toUpperCase())}:</strong> {cluster.reason}.
      </Banner>
      <div className="tiles">
        <Tile label="Brokers up" value={`${cluster.brokers_up} of ${cluster.brokers_total}`} loud={cluster.brokers_up < cluster.brokers_total} to="/brokers" />
        <Tile label="Without leader" value={count(cluster.leaderless)} loud={cluster.leaderless > 0} hint={`of ${plural(cluster.partition_count, "partition")}`} to="/raft" />
        <Tile label="Under-replicated" value={count(cluster.under_replicated)} loud={cluster.under_replicated > 0} hint={`in ${plural(cluster.topic_count, "topic")}`} to="/raft" />
        <Tile label="Produced" value={rate(series.produce_rate)} hint={bytesPerSecond(series.produce_bytes)} to="/topics" />
        <Tile label="Consumed" value={rate(series.consume_rate)} hint={bytesPerSecond(series.consume_bytes)} to="/groups" />
        <Tile label="Leases out" value={count(series.leases_held)} hint={(series.leases_parked ?? 0) > 0 ? `${count(series.leases_parked)} to retry` : "with workers"} to="/groups?kind=lease" />
        <Tile label="Dead letters" value={count(waiting)} hint={waiting ? "waiting" : "none"} to="/dead-letters" />
      </div>
      {cluster.topic_count === 0 && (
        <div className="card">
          <Empty icon={StackIcon} title="The cluster is ready, and has no topic yet" command="drmq topic create orders --partitions 3">
            Create one in <Link to="/topics?create=1">Topics</Link>, or with this command. Its messages and rates will be here.
          </Empty>
        </div>
      )}
      <div className="grid-2">
        <Chart title="Messages" lines={MESSAGES} format={perSecond} events={marks} />
        <Chart title="Latency of produce requests" lines={LATENCY} format={milliseconds} events={marks} />
        <Chart title="Bytes" lines={BYTES} format={bytesPerSecond} isBinary events={marks} />
        <Chart title="Durability, p99" lines={DURABLE} format={milliseconds} events={marks} />
      </div>
      <Card title="Brokers" flush extra={<Link to="/brokers">All brokers</Link>}>
        <BrokerTable brokers={brokers} isShort />
      </Card>
      <div className="grid-2" style={{ alignItems: "start" }}>
        <WorstGroups groups={rows} />
        <Card title="Last events" flush extra={<Link to="/events">All events</Link>}>
          <EventList events={events.filter((each) => !isFirstLeader(each)).slice(0, EVENTS_SHOWN)} />
        </Card>
      </div>
    </Page>
  );
}

function WorstGroups({ groups }: { groups: Group[] | undefined }) {
  const rows = [...(groups ?? [])].sort(byTimeLag).slice(0, GROUPS_SHOWN);
  const most = Math.max(1, ...rows.map((each) => each.lag_ms ?? 0));
  return (
    <Card title="Groups with most lag" flush extra={<Link to="/groups">All groups</Link>}>
      {groups && rows.length === 0 ? (
        <Empty icon={PeopleIcon} title="No group reads yet" command="drmq consume orders --follow --group billing">
          A group appears when its first consumer joins.
        </Empty>
      ) : (
        <div className="table-scroll" tabIndex={0} role="region" aria-label="Groups with most lag">
          <table className="table snug">
            <thead>
              <tr>
                <th scope="col">Group</th>
                <th scope="col">State</th>
                <th scope="col">Lag in time</th>
                <th scope="col" className="num">Records</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((each) => (
                <tr key={each.group_id}>
                  <td><Link to={path`/groups/${each.group_id}`}><Name text={each.group_id} /></Link></td>
                  <td><Pill tone={toneOfGroup(each.state)}>{each.state}</Pill></td>
                  <td><TimeLag group={each} most={most} /></td>
                  <td className="num">{recordsLag(each)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}
