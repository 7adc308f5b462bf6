import { PeopleIcon } from "@primer/octicons-react";
import { useQueries } from "@tanstack/react-query";
import { Link } from "react-router";
import { Bar } from "../../components/Bar";
import { DataTable, type Column } from "../../components/DataTable";
import { Name } from "../../components/Name";
import { Card, Empty, ProblemBox, useNow } from "../../components/Page";
import { Pill, toneOfGroup } from "../../components/Status";
import { get, path } from "../../lib/api";
import { count, duration, quoted } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { Group, GroupDetail, Page as Listed } from "../../lib/types";

/** Of so many groups the lag in this topic alone is asked for. */
const ASKED_MAX = 25;

interface Row {
  group: Group;
  lag: number | null;
  oldest: number | null;
  partitions: number | null;
}

/** The groups that read this topic, with their lag in it. */
export function Consumers({ topic }: { topic: string }) {
  const query = useApi<Listed<Group>>("/groups", 3);
  const now = useNow(2000);
  const groups = (query.data?.items ?? []).filter((each) => each.topics.includes(topic));
  const details = useQueries({
    queries: groups.slice(0, ASKED_MAX).map((each) => ({
      queryKey: [path`/groups/${each.group_id}`],
      queryFn: ({ signal }: { signal: AbortSignal }) => get<GroupDetail>(path`/groups/${each.group_id}`, signal),
      refetchInterval: 3000,
    })),
  });
  const rows = groups.map((group, index): Row => {
    const parts = details[index]?.data?.partitions.filter((each) => each.topic === topic);
    const oldest = (parts ?? []).flatMap((each) => ((each.lag ?? 0) > 0 && each.oldest_open_ms !== null ? [each.oldest_open_ms] : []));
    return {
      group,
      lag: parts ? parts.reduce((sum, each) => sum + (each.lag ?? 0), 0) : null,
      oldest: oldest.length > 0 ? Math.min(...oldest) : null,
      partitions: parts?.length ?? null,
    };
  });
  const most = Math.max(1, ...rows.map((each) => each.lag ?? 0));
  const columns: Column<Row>[] = [
    { name: "Group", sort: (each) => each.group.group_id, cell: (each) => <Link to={path`/groups/${each.group.group_id}`}><Name text={each.group.group_id} /></Link> },
    { name: "Kind", sort: (each) => each.group.type, cell: (each) => (each.group.type === "share" ? "Lease" : "Classic") },
    { name: "State", sort: (each) => each.group.state, cell: (each) => <Pill tone={toneOfGroup(each.group.state)}>{each.group.state}</Pill> },
    { name: "Members", right: true, sort: (each) => each.group.members, cell: (each) => count(each.group.members) },
    { name: "Partitions", right: true, sort: (each) => each.partitions, cell: (each) => count(each.partitions) },
    { name: "Lag in this topic", sort: (each) => each.lag, cell: (each) => (each.lag === null ? "–" : <Bar share={each.lag / most} text={count(each.lag)} />) },
    { name: "Lag in time", right: true, sort: (each) => (each.oldest === null ? 0 : now - each.oldest), cell: (each) => (each.lag === 0 ? "0 s" : each.oldest === null ? "–" : duration(now - each.oldest)) },
  ];
  return (
    <Card title="Consumers" flush>
      {query.error && <div style={{ padding: 16 }}><ProblemBox error={query.error} /></div>}
      {query.data && rows.length === 0 ? (
        <Empty icon={PeopleIcon} title="No group reads this topic" command={`drmq consume ${quoted(topic)} --follow --group billing`}>
          A group appears here when its first consumer joins or commits.
        </Empty>
      ) : (
        <DataTable label="Consumers" columns={columns} rows={rows} rowKey={(each) => each.group.group_id} sortBy="Group" />
      )}
    </Card>
  );
}
