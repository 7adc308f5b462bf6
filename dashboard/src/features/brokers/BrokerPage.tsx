import { Tabs, TextInput } from "@mantine/core";
import { SearchIcon, StackIcon } from "@primer/octicons-react";
import { useState, type ReactNode } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { BrokerState } from "../../components/BrokerTable";
import { DataTable, type Column } from "../../components/DataTable";
import { Name } from "../../components/Name";
import { Card, Empty, Page, ProblemBox } from "../../components/Page";
import { SettingsTable } from "../../components/SettingsTable";
import { Pill } from "../../components/Status";
import { path } from "../../lib/api";
import { bytes, count, duration, percent, plural } from "../../lib/format";
import { useLive } from "../../lib/live";
import { useApi } from "../../lib/query";
import type { BrokerDetail, Counter, Page as Listed, RaftGroup } from "../../lib/types";

const GROUPS_MAX = 1000;
const COMMANDS: Record<string, (node: string) => string> = {
  partitions: () => "drmq raft ls",
  counters: (node) => `drmq debug counters --node ${node}`,
  settings: () => "drmq cluster members",
};

export default function BrokerPage() {
  const { node = "", tab: wanted = "partitions" } = useParams();
  const tab = wanted in COMMANDS ? wanted : "partitions";
  const navigate = useNavigate();
  const query = useApi<BrokerDetail>(path`/brokers/${node}`, 3);
  const broker = query.data?.broker;
  const directories = query.data?.settings.find((each) => each.name === "log.dirs" || each.name === "log.dir")?.value;
  return (
    <Page title={`Node ${node}`} name={`Node ${node}`} command={query.error && !broker ? "drmq cluster members" : COMMANDS[tab]?.(node)} query={query} up={<Link to="/brokers">Brokers</Link>}>
      {broker && (
        <section className="card" aria-label={`Node ${node}`}>
          <dl className="facts">
            <Fact name="State"><BrokerState broker={broker} /></Fact>
            <Fact name="Role">{broker.is_controller ? "Controller" : "Broker"}{broker.rack && ` in rack ${broker.rack}`}</Fact>
            <Fact name="Up for">{duration(broker.uptime_ms)}</Fact>
            <Fact name="Processor">{percent(broker.cpu_share)} of a core</Fact>
            <Fact name="Memory">{bytes(broker.resident_bytes)}</Fact>
            <Fact name="Connections">{count(broker.connections)}</Fact>
            <Fact name="Leads">{plural(broker.leaders ?? 0, "partition")}</Fact>
            <Fact name="Follows">{plural(broker.followers ?? 0, "partition")}</Fact>
            <Fact name="Kafka clients"><span className="mono">{broker.host}:{broker.port}</span></Fact>
            <Fact name="HTTP">{broker.http ? <a className="mono" href={`${location.protocol}//${broker.http}/`}>{broker.http}</a> : "no gateway"}</Fact>
            <Fact name="Logs">{bytes(broker.log_bytes)}</Fact>
            {directories && <Fact name="Log directories" isWide><span className="mono">{directories}</span></Fact>}
          </dl>
        </section>
      )}
      {query.data && (
        <Tabs value={tab} onChange={(next) => void navigate(next === "partitions" ? path`/brokers/${node}` : path`/brokers/${node}/${next ?? ""}`)} keepMounted={false}>
          <Tabs.List>
            <Tabs.Tab value="partitions">Partitions</Tabs.Tab>
            <Tabs.Tab value="settings">Settings</Tabs.Tab>
            <Tabs.Tab value="counters">Counters</Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="partitions" pt="md"><Replicas node={Number(node)} /></Tabs.Panel>
          <Tabs.Panel value="settings" pt="md"><SettingsTable title="Settings" settings={query.data.settings} /></Tabs.Panel>
          <Tabs.Panel value="counters" pt="md"><Counters counters={query.data.counters} /></Tabs.Panel>
        </Tabs>
      )}
    </Page>
  );
}

function Fact({ name, children, isWide = false }: { name: string; children: ReactNode; isWide?: boolean }) {
  return (
    <div style={isWide ? { gridColumn: "span 2", overflowWrap: "anywhere" } : undefined}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** The partitions that the node leads or follows. */
function Replicas({ node }: { node: number }) {
  const query = useApi<Listed<RaftGroup>>(`/raft?limit=${GROUPS_MAX}`, 5);
  const { overview } = useLive();
  const rows = (query.data?.items ?? []).filter((each) => each.leader === node || each.replicas.some((replica) => replica.node_id === node));
  const columns: Column<RaftGroup>[] = [
    { name: "Partition", sort: (each) => `${each.topic}-${each.partition}`, cell: (each) => <Link to={path`/topics/${each.topic}/partitions`}><Name text={`${each.topic}-${each.partition}`} /></Link> },
    { name: "Role", sort: (each) => (each.leader === node ? 0 : 1), cell: (each) => <span className={`cell ${each.leader === node ? "lead" : ""}`}>{each.leader === node ? "Leader" : "Follower"}</span> },
    { name: "State", sort: (each) => (each.in_sync.includes(node) ? 1 : 0), cell: (each) => (each.in_sync.includes(node) ? <Pill tone="good">In sync</Pill> : <Pill tone="warn">Not in sync</Pill>) },
    { name: "Term", right: true, sort: (each) => each.term, cell: (each) => count(each.term) },
    { name: "Committed to", right: true, sort: (each) => each.high_watermark, cell: (each) => (each.high_watermark < 0 ? "–" : count(each.high_watermark)) },
    { name: "Behind", right: true, sort: (each) => behind(each, node), cell: (each) => count(behind(each, node)) },
  ];
  return (
    <Card title="Partitions" flush extra={query.data?.next && <span className="small muted">of the first {count(GROUPS_MAX)} of the cluster</span>}>
      {query.error && <div style={{ padding: 16 }}><ProblemBox error={query.error} /></div>}
      {query.data && rows.length === 0 ? (
        <Empty icon={StackIcon} title="No partitions" command="drmq cluster rebalance">
          {(overview?.cluster.topic_count ?? 0) === 0 ? "The cluster has no topic yet." : "No replica is on this node. A rebalance spreads them over all nodes."}
        </Empty>
      ) : (
        <DataTable label="Partitions" columns={columns} rows={rows} rowKey={(each) => `${each.topic}-${each.partition}`} sortBy="Partition" />
      )}
    </Card>
  );
}

const behind = (group: RaftGroup, node: number) => (group.leader === node ? 0 : (group.replicas.find((each) => each.node_id === node)?.lag ?? null));

const labels = (each: Counter) => Object.entries(each.labels).map(([name, value]) => `${name}=${value}`).join(", ");

function Counters({ counters }: { counters: Counter[] }) {
  const [text, setText] = useState("");
  const rows = counters.filter((each) => `${each.name} ${labels(each)}`.includes(text.trim()) && (text !== "" || each.value !== 0));
  const columns: Column<Counter>[] = [
    { name: "Counter", sort: (each) => each.name, cell: (each) => <span className="mono">{each.name}</span> },
    { name: "Labels", cell: (each) => <span className="mono muted">{labels(each)}</span> },
    { name: "Value", right: true, sort: (each) => each.value, cell: (each) => count(each.value) },
  ];
  return (
    <Card
      title="Counters since its start"
      flush
      extra={
        <TextInput
          size="xs" aria-label="Find a counter" placeholder="Find a counter" leftSection={<SearchIcon size={14} />} value={text} data-search
          onChange={(event) => setText(event.currentTarget.value)}
        />
      }
    >
      <DataTable label="Counters" columns={columns} rows={rows} rowKey={(each) => each.name + labels(each)} sortBy="Counter" />
    </Card>
  );
}
