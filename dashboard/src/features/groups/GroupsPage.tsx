import { TextInput } from "@mantine/core";
import { PeopleIcon, SearchIcon } from "@primer/octicons-react";
import { useState } from "react";
import { Link } from "react-router";
import { Bar } from "../../components/Bar";
import { DataTable, type Column } from "../../components/DataTable";
import { Empty, Page } from "../../components/Page";
import { Pill, toneOfGroup } from "../../components/Status";
import { path } from "../../lib/api";
import { short } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { Group, Page as Listed } from "../../lib/types";

export default function GroupsPage() {
  const query = useApi<Listed<Group>>("/groups", 3);
  const [text, setText] = useState("");
  const all = query.data?.items ?? [];
  const rows = all.filter((each) => each.group_id.toLowerCase().includes(text.trim().toLowerCase()));
  const most = Math.max(1, ...all.map((each) => each.lag ?? 0));
  const columns: Column<Group>[] = [
    { name: "Group", sort: (each) => each.group_id, cell: (each) => <Link to={path`/groups/${each.group_id}`}>{each.group_id}</Link> },
    { name: "Type", sort: (each) => each.type, cell: (each) => (each.type === "share" ? "lease group" : `${each.type} group`) },
    { name: "State", sort: (each) => each.state, cell: (each) => <Pill tone={toneOfGroup(each.state)}>{each.state}</Pill> },
    { name: "Lag in records", sort: (each) => each.lag, cell: (each) => (each.lag === null ? "–" : <Bar share={each.lag / most} text={short(each.lag)} />) },
  ];
  return (
    <Page title="Groups" name="Groups" command="drmq group ls" query={query}>
      <section className="card flush" aria-label="Groups">
        {query.data && all.length === 0 ? (
          <Empty icon={PeopleIcon} title="No group yet" command="drmq consume orders --follow --group billing">
            Consumers of one group share the partitions of a topic. A group appears when its first consumer joins.
          </Empty>
        ) : (
          <>
            <div className="card-head">
              <TextInput aria-label="Find a group" placeholder="Find a group" leftSection={<SearchIcon size={14} />} value={text} data-search
                onChange={(event) => setText(event.currentTarget.value)} style={{ flex: "1 1 200px", maxWidth: 320 }} />
            </div>
            <DataTable label="Groups" columns={columns} rows={rows} rowKey={(each) => each.group_id} sortBy="Group" />
          </>
        )}
      </section>
    </Page>
  );
}
