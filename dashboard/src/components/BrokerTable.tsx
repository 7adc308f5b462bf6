import { Link } from "react-router";
import { bytes, count, duration, percent } from "../lib/format";
import type { Broker } from "../lib/types";
import { Bar } from "./Bar";
import { DataTable, type Column } from "./DataTable";
import { Pill } from "./Status";

export function BrokerState({ broker }: { broker: Broker }) {
  if (broker.is_fenced) return <Pill tone="bad">Fenced</Pill>;
  return broker.is_up ? <Pill tone="good">Up</Pill> : <Pill tone="bad">No answer</Pill>;
}

/** How full a disk is, in words and as a share; a full one refuses appends. */
export function diskUse(broker: Broker): { share: number; text: string; tone: "" | "warn" } | null {
  if (broker.disk_total_bytes == null || broker.disk_free_bytes == null) return null;
  const share = 1 - broker.disk_free_bytes / Math.max(1, broker.disk_total_bytes);
  return { share, text: `${bytes(broker.disk_free_bytes)} free`, tone: share > 0.9 ? "warn" : "" };
}

/** The nodes with bars: processor of one core, memory relative to the largest, and how full the disk is. */
export function BrokerTable({ brokers, isShort = false }: { brokers: Broker[]; isShort?: boolean }) {
  const memory = Math.max(1, ...brokers.map((each) => each.resident_bytes ?? 0));
  const columns: Column<Broker>[] = [
    {
      name: "Node",
      sort: (each) => each.node_id,
      cell: (each) => (
        <span className="row tight">
          <Link to={`/brokers/${each.node_id}`}>Node {each.node_id}</Link>
          {each.is_controller && <span className="pill">controller</span>}
        </span>
      ),
    },
    { name: "State", cell: (each) => <BrokerState broker={each} /> },
    {
      name: "Processor",
      sort: (each) => each.cpu_share,
      cell: (each) => <Bar share={each.cpu_share ?? 0} text={percent(each.cpu_share)} tone={(each.cpu_share ?? 0) > 0.9 ? "warn" : ""} />,
    },
    {
      name: "Memory",
      sort: (each) => each.resident_bytes,
      cell: (each) => <Bar share={(each.resident_bytes ?? 0) / memory} text={bytes(each.resident_bytes)} />,
    },
    { name: "Log", right: true, sort: (each) => each.log_bytes, cell: (each) => bytes(each.log_bytes) },
    {
      name: "Disk",
      sort: (each) => diskUse(each)?.share ?? 0,
      cell: (each) => {
        const use = diskUse(each);
        return use === null ? "–" : <Bar share={use.share} text={use.text} tone={use.tone} />;
      },
    },
    { name: "Leads", right: true, sort: (each) => each.leaders, cell: (each) => count(each.leaders) },
    { name: "Follows", right: true, sort: (each) => each.followers, cell: (each) => count(each.followers) },
    { name: "Clients", right: true, sort: (each) => each.connections, cell: (each) => count(each.connections) },
    { name: "Up for", right: true, sort: (each) => each.uptime_ms, cell: (each) => duration(each.uptime_ms) },
  ];
  const shown = isShort ? columns.filter((each) => each.name !== "Clients" && each.name !== "Follows") : columns;
  return <DataTable label="Brokers" columns={shown} rows={brokers} rowKey={(each) => String(each.node_id)} />;
}
