import { Button, Switch, TextInput } from "@mantine/core";
import { PinIcon, PlusIcon, SearchIcon, StackIcon } from "@primer/octicons-react";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { DataTable, type Column } from "../../components/DataTable";
import { Name } from "../../components/Name";
import { Empty, Page } from "../../components/Page";
import { Pill } from "../../components/Status";
import { path } from "../../lib/api";
import { bytes, count, duration, plural, rate } from "../../lib/format";
import { useStreams } from "../../lib/live";
import { setPrefs, usePrefs } from "../../lib/prefs";
import { useApi } from "../../lib/query";
import type { Group, Page as Listed, Topic } from "../../lib/types";
import { CreateTopic } from "./CreateTopic";

function TopicState({ topic }: { topic: Topic }) {
  if (topic.leaderless > 0) return <Pill tone="bad">{topic.leaderless} without leader</Pill>;
  if (topic.under_replicated > 0) return <Pill tone="warn">{topic.under_replicated} under-replicated</Pill>;
  return <Pill tone="good">In sync</Pill>;
}

interface Readers {
  groups: number;
  lag: number;
  lagMs: number | null;
}

/** The groups of each topic, with the age of what the slowest of them has not done. */
function readersOf(groups: Group[]): Map<string, Readers> {
  const found = new Map<string, Readers>();
  for (const group of groups) {
    for (const topic of group.topics) {
      const before = found.get(topic) ?? { groups: 0, lag: 0, lagMs: null };
      const lagMs = group.lag === 0 ? 0 : group.lag_ms;
      found.set(topic, { groups: before.groups + 1, lag: before.lag + (group.lag ?? 0), lagMs: lagMs === null ? before.lagMs : Math.max(before.lagMs ?? 0, lagMs) });
    }
  }
  return found;
}

function columnsOf(readers: Map<string, Readers>, pinned: Set<string>, pin: (name: string) => void): Column<Topic>[] {
  return [
    {
      name: "Topic",
      sort: (each) => `${pinned.has(each.name) ? 0 : 1}${each.name}`,
      cell: (each) => (
        <span className="row tight">
          <button type="button" className="pin" aria-pressed={pinned.has(each.name)} aria-label={`Pin ${each.name}`} onClick={() => pin(each.name)}>
            <PinIcon size={14} />
          </button>
          <Link to={path`/topics/${each.name}`}><Name text={each.name} /></Link>
          {each.is_internal && <span className="pill">internal</span>}
        </span>
      ),
    },
    { name: "State", sort: (each) => each.leaderless * 1000 + each.under_replicated, cell: (each) => <TopicState topic={each} /> },
    { name: "Written", right: true, sort: (each) => each.rate, cell: (each) => rate(each.rate) },
    {
      name: "Groups", sort: (each) => readers.get(each.name)?.lagMs ?? -1,
      cell: (each) => {
        const found = readers.get(each.name);
        if (!found) return <span className="muted">none</span>;
        return <Link to={path`/topics/${each.name}/consumers`}>{plural(found.groups, "group")}{found.lagMs === null ? "" : found.lagMs === 0 ? ", caught up" : `, ${duration(found.lagMs)} behind`}</Link>;
      },
    },
    { name: "Partitions", right: true, sort: (each) => each.partitions, cell: (each) => count(each.partitions) },
    { name: "Replicas", right: true, sort: (each) => each.replicas, cell: (each) => count(each.replicas) },
    { name: "Records", right: true, sort: (each) => each.records, cell: (each) => (each.is_internal ? "–" : count(each.records)) },
    { name: "Size", right: true, sort: (each) => each.size_bytes, cell: (each) => bytes(each.size_bytes) },
  ];
}

export default function TopicsPage() {
  const [search, setSearch] = useSearchParams();
  const [text, setText] = useState("");
  const { pins } = usePrefs();
  const isInternal = search.get("internal") === "1";
  const query = useApi<Listed<Topic>>(`/topics${isInternal ? "?internal=true" : ""}`, 3);
  const groups = useApi<Listed<Group>>("/groups", 5);
  const [rates, setRates] = useState<Map<string, number | null>>(new Map());
  useStreams(["topics"], (snapshot) => setRates(new Map((snapshot.data as Listed<Topic>).items.map((each) => [each.name, each.rate]))), 2000);
  const all = useMemo(() => (query.data?.items ?? []).map((each) => ({ ...each, rate: rates.get(each.name) ?? each.rate })), [query.data, rates]);
  const rows = useMemo(() => all.filter((each) => each.name.toLowerCase().includes(text.trim().toLowerCase())), [all, text]);
  const columns = useMemo(() => {
    const pinned = new Set(pins);
    const pin = (name: string) => setPrefs({ pins: pinned.has(name) ? pins.filter((each) => each !== name) : [...pins, name] });
    return columnsOf(readersOf(groups.data?.items ?? []), pinned, pin);
  }, [groups.data, pins]);
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
          <DataTable label="Topics" columns={columns} rows={rows} rowKey={(each) => each.name} sortBy="Topic" />
        )}
      </section>
      <CreateTopic opened={search.get("create") === "1"} onClose={() => set("create", false)} />
    </Page>
  );
}
