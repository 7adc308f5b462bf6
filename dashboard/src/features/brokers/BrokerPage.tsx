import { TextInput } from "@mantine/core";
import { SearchIcon } from "@primer/octicons-react";
import { useState } from "react";
import { useParams } from "react-router";
import { BrokerState } from "../../components/BrokerTable";
import { DataTable, type Column } from "../../components/DataTable";
import { Card, Page } from "../../components/Page";
import { SettingsTable } from "../../components/SettingsTable";
import { path } from "../../lib/api";
import { bytes, count, duration, percent } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { BrokerDetail, Counter } from "../../lib/types";

export default function BrokerPage() {
  const { node = "" } = useParams();
  const query = useApi<BrokerDetail>(path`/brokers/${node}`, 3);
  const broker = query.data?.broker;
  return (
    <Page title={`Node ${node}`} name={`Node ${node}`} command={`drmq debug counters --node ${node}`} query={query}>
      {broker && (
        <section className="card">
          <dl className="facts">
            <Fact name="State"><BrokerState broker={broker} /></Fact>
            <Fact name="Kafka clients"><span className="mono">{broker.host}:{broker.port}</span></Fact>
            <Fact name="HTTP">{broker.http ? <a className="mono" href={`${location.protocol}//${broker.http}/`}>{broker.http}</a> : "no gateway"}</Fact>
            <Fact name="Role">{broker.is_controller ? "Controller" : "Broker"}{broker.rack && ` in rack ${broker.rack}`}</Fact>
            <Fact name="Up for">{duration(broker.uptime_ms)}</Fact>
            <Fact name="Processor">{percent(broker.cpu_share)} of a core</Fact>
            <Fact name="Memory">{bytes(broker.resident_bytes)}</Fact>
            <Fact name="Logs">{bytes(broker.log_bytes)}</Fact>
            <Fact name="Leads">{count(broker.leaders)} partitions</Fact>
            <Fact name="Follows">{count(broker.followers)} partitions</Fact>
            <Fact name="Connections">{count(broker.connections)}</Fact>
          </dl>
        </section>
      )}
      {query.data && <Counters counters={query.data.counters} />}
      {query.data && <SettingsTable title="Settings" settings={query.data.settings} />}
    </Page>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

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
