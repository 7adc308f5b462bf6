import { Button, Switch, TextInput } from "@mantine/core";
import { PlusIcon, SearchIcon, StackIcon } from "@primer/octicons-react";
import { useState } from "react";
import { Link, useSearchParams } from "react-router";
import { DataTable, type Column } from "../../components/DataTable";
import { Empty, Page } from "../../components/Page";
import { Pill } from "../../components/Status";
import { path } from "../../lib/api";
import { bytes, count } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { Page as Listed, Topic } from "../../lib/types";
import { CreateTopic } from "./CreateTopic";

function TopicState({ topic }: { topic: Topic }) {
  if (topic.leaderless > 0) return <Pill tone="bad">{topic.leaderless} without leader</Pill>;
  if (topic.under_replicated > 0) return <Pill tone="warn">{topic.under_replicated} under-replicated</Pill>;
  return <Pill tone="good">In sync</Pill>;
}

const COLUMNS: Column<Topic>[] = [
  {
    name: "Topic",
    sort: (each) => each.name,
    cell: (each) => (
      <span className="row tight">
        <Link to={path`/topics/${each.name}`}>{each.name}</Link>
        {each.is_internal && <span className="pill">internal</span>}
      </span>
    ),
  },
  { name: "State", sort: (each) => each.leaderless * 1000 + each.under_replicated, cell: (each) => <TopicState topic={each} /> },
  { name: "Partitions", right: true, sort: (each) => each.partitions, cell: (each) => count(each.partitions) },
  { name: "Replicas", right: true, sort: (each) => each.replicas, cell: (each) => count(each.replicas) },
  { name: "Records", right: true, sort: (each) => each.records, cell: (each) => (each.is_internal ? "–" : count(each.records)) },
  { name: "Size", right: true, sort: (each) => each.size_bytes, cell: (each) => bytes(each.size_bytes) },
];

export default function TopicsPage() {
  const [search, setSearch] = useSearchParams();
  const [text, setText] = useState("");
  const isInternal = search.get("internal") === "1";
  const query = useApi<Listed<Topic>>(`/topics${isInternal ? "?internal=true" : ""}`, 3);
  const all = query.data?.items ?? [];
  const rows = all.filter((each) => each.name.toLowerCase().includes(text.trim().toLowerCase()));
  const set = (name: string, on: boolean) =>
    setSearch((before) => {
      const next = new URLSearchParams(before);
      if (on) next.set(name, "1");
      else next.delete(name);
      return next;
    }, { replace: true });
  return (
    <Page
      title="Topics" name="Topics" command="drmq topic ls" query={query}
      actions={<Button leftSection={<PlusIcon size={16} />} onClick={() => set("create", true)}>Create topic</Button>}
    >
      <section className="card flush" aria-label="Topics">
        <div className="card-head">
          <TextInput
            aria-label="Find a topic" placeholder="Find a topic" leftSection={<SearchIcon size={14} />} value={text} data-search
            onChange={(event) => setText(event.currentTarget.value)} style={{ flex: "1 1 200px", maxWidth: 320 }}
          />
          <Switch label="Internal topics" checked={isInternal} onChange={(event) => set("internal", event.currentTarget.checked)} />
        </div>
        {query.data && rows.length === 0 ? (
          <Empty
            icon={StackIcon} title={all.length === 0 ? "No topic yet" : "No topic has this name"} command="drmq topic create orders --partitions 3"
          >
            A topic is a log of messages in partitions, each copied to several nodes.
          </Empty>
        ) : (
          <DataTable label="Topics" columns={COLUMNS} rows={rows} rowKey={(each) => each.name} sortBy="Topic" />
        )}
      </section>
      <CreateTopic opened={search.get("create") === "1"} onClose={() => set("create", false)} />
    </Page>
  );
}
