import { SegmentedControl, TextInput } from "@mantine/core";
import { SearchIcon, WorkflowIcon } from "@primer/octicons-react";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { DataTable, type Column } from "../../components/DataTable";
import { Name } from "../../components/Name";
import { Empty, Page } from "../../components/Page";
import { count, plural, rate } from "../../lib/format";
import { useApi } from "../../lib/query";
import type { Topology, TopologyEdge, TopologyNode } from "../../lib/types";
import { Graph } from "./Graph";
import { related } from "./layout";
import { addressOf } from "./nodes";

/** Who writes to which topic, and which groups read it, with live rates. */
export default function TopologyPage() {
  const query = useApi<Topology>("/topology", 2);
  const [params, setParams] = useSearchParams();
  const [text, setText] = useState("");
  const view = params.get("view") === "list" ? "list" : "graph";
  const chosen = params.get("node");
  const set = (name: string, value: string | null) =>
    setParams((before) => {
      const next = new URLSearchParams(before);
      if (value) next.set(name, value);
      else next.delete(name);
      return next;
    }, { replace: true });
  const found = query.data;
  const word = text.trim().toLowerCase();
  const [nodes, edges] = useMemo(() => {
    if (!found) return [[], []] as [TopologyNode[], TopologyEdge[]];
    if (word === "") return [found.nodes, found.edges] as [TopologyNode[], TopologyEdge[]];
    // What is found is shown with all that it is connected to.
    const ids = new Set(found.nodes.filter((each) => each.name.toLowerCase().includes(word)).flatMap((each) => [...related(each.id, found.edges)]));
    return [found.nodes.filter((each) => ids.has(each.id)), found.edges.filter((each) => ids.has(each.source) && ids.has(each.target))] as [TopologyNode[], TopologyEdge[]];
  }, [found, word]);
  const isEmpty = found !== undefined && found.nodes.length === 0;
  return (
    <Page title="Topology" name="Topology" command="drmq group ls --lag" query={query}>
      <section className="card flush" aria-label="Topology">
        {isEmpty ? (
          <Empty icon={WorkflowIcon} title="Nothing flows yet" command="drmq topic create orders --partitions 3">
            Producers, topics and groups appear here, connected by what flows between them.
          </Empty>
        ) : (
          <>
            <div className="card-head">
              <TextInput aria-label="Find a topic, group or producer" placeholder="Find a topic, group or producer" leftSection={<SearchIcon size={14} />} value={text} data-search
                onChange={(event) => setText(event.currentTarget.value)} style={{ flex: "1 1 220px", maxWidth: 340 }} />
              <SegmentedControl aria-label="View" value={view} onChange={(value) => set("view", value === "list" ? value : null)}
                data={[{ value: "graph", label: "Graph" }, { value: "list", label: "List" }]} />
            </div>
            {found && (view === "graph" ? <Graph nodes={nodes} edges={edges} chosen={chosen} onChoose={(id) => set("node", id)} /> : <Flows nodes={nodes} edges={edges} />)}
            {found?.is_truncated && <p className="muted small" style={{ margin: 0, padding: 16 }}>There are more producers than are shown.</p>}
          </>
        )}
      </section>
    </Page>
  );
}

interface Flow {
  edge: TopologyEdge;
  source: TopologyNode;
  target: TopologyNode;
}

const WORDS = { produces: "writes to", consumes: "is read by", dead_letters: "gives up to" };

/** The same as the graph, for keyboard and screen reader. */
function Flows({ nodes, edges }: { nodes: TopologyNode[]; edges: TopologyEdge[] }) {
  const byId = new Map(nodes.map((each) => [each.id, each]));
  const rows = edges.flatMap((edge): Flow[] => {
    const [source, target] = [byId.get(edge.source), byId.get(edge.target)];
    return source && target ? [{ edge, source, target }] : [];
  });
  const ends = new Set(edges.flatMap((each) => [each.source, each.target]));
  const alone = nodes.filter((each) => !ends.has(each.id));
  const columns: Column<Flow>[] = [
    { name: "From", sort: (each) => each.source.name, cell: (each) => <NodeName node={each.source} /> },
    { name: "Flow", sort: (each) => each.edge.kind, cell: (each) => <span className="muted">{WORDS[each.edge.kind]}</span> },
    { name: "To", sort: (each) => each.target.name, cell: (each) => <NodeName node={each.target} /> },
    { name: "Rate", right: true, sort: (each) => each.edge.rate, cell: (each) => rate(each.edge.rate) },
    { name: "Lag", right: true, sort: (each) => each.edge.lag, cell: (each) => count(each.edge.lag) },
  ];
  return (
    <>
      <DataTable label="Flows" columns={columns} rows={rows} rowKey={(each) => `${each.edge.source}>${each.edge.target}>${each.edge.kind}`} sortBy="From" />
      {alone.length > 0 && (
        <p className="small muted" style={{ margin: 0, padding: 16 }}>
          {plural(alone.length, "node")} without a flow: {alone.slice(0, 40).map((each, index) => <span key={each.id}>{index > 0 && ", "}<NodeName node={each} /></span>)}
          {alone.length > 40 && ` and ${alone.length - 40} more`}
        </p>
      )}
    </>
  );
}

function NodeName({ node }: { node: TopologyNode }) {
  const to = addressOf(node);
  return to === null ? <span>{node.name}</span> : <Link to={to}><Name text={node.name} /></Link>;
}
