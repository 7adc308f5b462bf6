import { Button, NumberInput } from "@mantine/core";
import { PlusIcon } from "@primer/octicons-react";
import { useState } from "react";
import { Link } from "react-router";
import { Confirm } from "../../components/Confirm";
import { Bar } from "../../components/Bar";
import { DataTable, type Column } from "../../components/DataTable";
import { Card } from "../../components/Page";
import { Pill } from "../../components/Status";
import { call, path } from "../../lib/api";
import { bytes, count } from "../../lib/format";
import { client, useApi } from "../../lib/query";
import type { Page as Listed, Partition } from "../../lib/types";

export function Partitions({ topic }: { topic: string }) {
  const query = useApi<Listed<Partition>>(path`/topics/${topic}/partitions`, 3);
  const rows = query.data?.items ?? [];
  const [isAdding, setIsAdding] = useState(false);
  const [total, setTotal] = useState<number | string>("");
  const wanted = total === "" ? rows.length + 1 : Number(total);
  const most = Math.max(1, ...rows.map((each) => (each.end_offset ?? 0) - (each.start_offset ?? 0)));
  const columns: Column<Partition>[] = [
    { name: "Partition", sort: (each) => each.partition, cell: (each) => <Link to={`${path`/topics/${topic}`}?partition=${each.partition}`}>{each.partition}</Link> },
    { name: "Leader", sort: (each) => each.leader, cell: (each) => (each.leader === null ? <Pill tone="bad">None</Pill> : `Node ${each.leader}`) },
    { name: "Term", right: true, sort: (each) => each.leader_epoch, cell: (each) => count(each.leader_epoch) },
    {
      name: "Replicas",
      cell: (each) => (
        <span className="row tight">
          {each.replicas.map((node) => (
            <span key={node} className={`cell ${node === each.leader ? "lead" : each.in_sync.includes(node) ? "" : "late"}`}
              title={`Node ${node}: ${node === each.leader ? "leader" : each.in_sync.includes(node) ? "in sync" : "not in sync"}`}>
              {node}{each.in_sync.includes(node) ? "" : "!"}
            </span>
          ))}
        </span>
      ),
    },
    { name: "From", right: true, sort: (each) => each.start_offset, cell: (each) => count(each.start_offset) },
    { name: "To", right: true, sort: (each) => each.end_offset, cell: (each) => count(each.end_offset) },
    {
      name: "Records",
      sort: (each) => (each.end_offset ?? 0) - (each.start_offset ?? 0),
      cell: (each) => <Bar share={((each.end_offset ?? 0) - (each.start_offset ?? 0)) / most} text={count((each.end_offset ?? 0) - (each.start_offset ?? 0))} />,
    },
    { name: "Size", right: true, sort: (each) => each.size_bytes, cell: (each) => bytes(each.size_bytes) },
  ];
  return (
    <Card title="Partitions" flush extra={<Button size="xs" variant="default" leftSection={<PlusIcon size={14} />} onClick={() => setIsAdding(true)}>Add partitions</Button>}>
      <DataTable label="Partitions" columns={columns} rows={rows} rowKey={(each) => String(each.partition)} sortBy="Partition" />
      <Confirm
        opened={isAdding} onClose={() => setIsAdding(false)} title="Add partitions?" action={`Have ${wanted} partitions`}
        run={async () => {
          await call("PATCH", path`/topics/${topic}`, { partitions: wanted });
          await client.invalidateQueries();
        }}
      >
        <NumberInput label="New number of partitions" value={wanted} min={rows.length + 1} max={10_000} onChange={setTotal} mb="sm" />
        Topic <strong>{topic}</strong> has {rows.length} now. Keys may go to other partitions than before, and the number cannot be lowered again.
      </Confirm>
    </Card>
  );
}
