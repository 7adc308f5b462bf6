import { SegmentedControl, TextInput } from "@mantine/core";
import { PeopleIcon, SearchIcon } from "@primer/octicons-react";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { DataTable, type Column } from "../../components/DataTable";
import { recordsLag, TimeLag } from "../../components/Lag";
import { Name } from "../../components/Name";
import { Empty, Page } from "../../components/Page";
import { Pill, toneOfGroup } from "../../components/Status";
import { path } from "../../lib/api";
import { count, rate } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { Group, Page as Listed } from "../../lib/types";
import { isLeaseGroup, kindOf } from "./kinds";

export default function GroupsPage() {
  const query = useApi<Listed<Group>>("/groups", 3);
  const [params, setParams] = useSearchParams();
  const [text, setText] = useState("");
  const kind = params.get("kind") ?? "all";
  const all = useMemo(() => query.data?.items ?? [], [query.data]);
  const rows = useMemo(
    () => all.filter((each) => (kind === "all" || isLeaseGroup(each) === (kind === "lease")) && each.group_id.toLowerCase().includes(text.trim().toLowerCase())),
    [all, text, kind],
  );
  const columns = useMemo<Column<Group>[]>(() => {
    const most = Math.max(1, ...all.map((each) => each.lag_ms ?? 0));
    return [
      { name: "Group", sort: (each) => each.group_id, cell: (each) => <Link to={path`/groups/${each.group_id}`}><Name text={each.group_id} /></Link> },
      { name: "Kind", sort: kindOf, cell: (each) => kindOf(each).replace(" group", "") },
      { name: "State", sort: (each) => each.state, cell: (each) => <Pill tone={toneOfGroup(each.state)}>{each.state}</Pill> },
      { name: "Members", right: true, sort: (each) => each.members, cell: (each) => count(each.members) },
      { name: "Lag in time", sort: (each) => (each.lag === 0 ? 0 : each.lag_ms), cell: (each) => <TimeLag group={each} most={most} /> },
      { name: "In records", right: true, sort: (each) => each.lag, cell: recordsLag },
      { name: "Done", right: true, sort: (each) => each.rate, cell: (each) => rate(each.rate) },
      { name: "Leased", right: true, sort: (each) => each.held, cell: (each) => count(each.held) },
      {
        name: "Dead letters", right: true, sort: (each) => each.dead_letters,
        cell: (each) => ((each.dead_letters ?? 0) > 0 ? <Link to={path`/groups/${each.group_id}/letters`}>{count(each.dead_letters)}</Link> : count(each.dead_letters)),
      },
    ];
  }, [all]);
  return (
    <Page title="Groups" name="Groups" command="drmq group ls --lag" query={query}>
      <section className="card flush" aria-label="Groups">
        {query.data && all.length === 0 ? (
          <Empty icon={PeopleIcon} title="No group yet" command="drmq consume orders --follow --group billing">
            Consumers of one group share the partitions of a topic; workers of a lease group share its records one by one. A group appears when its first member joins.
          </Empty>
        ) : (
          <>
            <div className="card-head">
              <TextInput aria-label="Find a group" placeholder="Find a group" leftSection={<SearchIcon size={14} />} value={text} data-search
                onChange={(event) => setText(event.currentTarget.value)} style={{ flex: "1 1 200px", maxWidth: 320 }} />
              <SegmentedControl aria-label="Kind" value={kind} onChange={(value) => setParams(value === "all" ? {} : { kind: value }, { replace: true })}
                data={[{ value: "all", label: "All" }, { value: "classic", label: "Classic" }, { value: "lease", label: "Lease" }]} />
            </div>
            <DataTable label="Groups" columns={columns} rows={rows} rowKey={(each) => each.group_id} sortBy="Group" />
          </>
        )}
      </section>
    </Page>
  );
}
