import { Button } from "@mantine/core";
import { useMemo, useState } from "react";
import { Link } from "react-router";
import { plural, rate } from "../../lib/format";
import type { TopologyEdge, TopologyNode } from "../../lib/types";
import { layout, NODE_HEIGHT, NODE_WIDTH, related, type Placed } from "./layout";
import { addressOf, factsOf } from "./nodes";

const LABELS_MAX = 24;
const NAME_PX = NODE_WIDTH - 34;
/** So many flows can be wide and move. */
const FEW = 40;

/** The graph. A click lights up all that is upstream and downstream. */
export function Graph(props: { nodes: TopologyNode[]; edges: TopologyEdge[]; chosen: string | null; onChoose: (id: string | null) => void }) {
  const { nodes, edges, chosen } = props;
  const [all, setAll] = useState(false);
  // The shape changes seldom, the rates each second: places are found anew only for another shape.
  const shape = nodes.map((each) => each.id).join() + edges.map((each) => each.source + each.target).join();
  const placed = useMemo(() => layout(nodes, edges, all ? 1000 : undefined), [shape, all]); // eslint-disable-line react-hooks/exhaustive-deps
  const byId = new Map(nodes.map((each) => [each.id, each]));
  const shown = edges.filter((each) => placed.placed.has(each.source) && placed.placed.has(each.target));
  const lit = chosen !== null && placed.placed.has(chosen) ? related(chosen, shown) : null;
  const fastest = Math.max(1, ...shown.map((each) => each.rate ?? 0));
  const withLabels = (edge: TopologyEdge) => (lit ? lit.has(edge.source) && lit.has(edge.target) : shown.length <= LABELS_MAX);
  const chosenNode = chosen === null ? undefined : byId.get(chosen);
  return (
    <>
      <div className={`topology ${shown.length <= FEW ? "few" : ""}`} tabIndex={0} role="region" aria-label="The graph; the list has the same as text">
        <svg width={placed.width + 48} height={placed.height + 32} viewBox={`-24 -8 ${placed.width + 48} ${placed.height + 32}`} role="group" aria-label={`${plural(nodes.length, "node")} and ${plural(edges.length, "flow")}`}>
          {placed.columns.map((each) => <text key={each.label} x={each.x} y={14} className="topology-column">{each.label}</text>)}
          {shown.map((edge) => (
            <Flow key={`${edge.source}>${edge.target}>${edge.kind}`} edge={edge} from={placed.placed.get(edge.source)!} to={placed.placed.get(edge.target)!}
              isFaint={lit !== null && !(lit.has(edge.source) && lit.has(edge.target))} width={1.25 + (shown.length <= FEW ? 3 : 1) * Math.sqrt((edge.rate ?? 0) / fastest)} hasLabel={withLabels(edge)} />
          ))}
          {[...placed.placed.values()].map((each) => (
            <Node key={each.node.id} placed={{ ...each, node: byId.get(each.node.id) ?? each.node }} isChosen={each.node.id === chosen} isFaint={lit !== null && !lit.has(each.node.id)}
              onChoose={() => props.onChoose(each.node.id === chosen ? null : each.node.id)} />
          ))}
        </svg>
      </div>
      <div className="card-head" style={{ borderTop: "1px solid var(--line)" }}>
        <span className="small muted" role="status">
          {chosenNode && lit ? `${chosenNode.name}: ${plural(lit.size - 1, "node")} upstream and downstream` : `${plural(nodes.length, "node")}, ${plural(edges.length, "flow")}. Choose a node to see what it is connected to.`}
        </span>
        <span className="row">
          {chosenNode && addressOf(chosenNode) && <Button size="xs" variant="default" component={Link} to={addressOf(chosenNode)!}>Open {chosenNode.name}</Button>}
          {chosenNode && <Button size="xs" variant="subtle" color="gray" onClick={() => props.onChoose(null)}>Show all</Button>}
          {placed.left > 0 && <Button size="xs" variant="default" onClick={() => setAll(true)}>Show {placed.left} more</Button>}
        </span>
      </div>
    </>
  );
}

function Flow({ edge, from, to, isFaint, width, hasLabel }: { edge: TopologyEdge; from: Placed; to: Placed; isFaint: boolean; width: number; hasLabel: boolean }) {
  const [x1, y1] = [from.x + NODE_WIDTH, from.y + NODE_HEIGHT / 2];
  const [x2, y2] = [to.x, to.y + NODE_HEIGHT / 2];
  const bend = Math.max(40, Math.abs(x2 - x1) / 2);
  const flows = (edge.rate ?? 0) > 0;
  return (
    <g className={`flow ${edge.kind} ${flows ? "flows" : ""} ${isFaint ? "faint" : ""}`}>
      <path d={`M ${x1} ${y1} C ${x1 + bend} ${y1}, ${x2 - bend} ${y2}, ${x2} ${y2}`} strokeWidth={width} />
      {hasLabel && edge.rate !== null && edge.rate > 0 && (
        <text x={(x1 + x2) / 2} y={(y1 + y2) / 2 - 5} className="flow-rate">{rate(edge.rate)}</text>
      )}
    </g>
  );
}

function Node({ placed, isChosen, isFaint, onChoose }: { placed: Placed; isChosen: boolean; isFaint: boolean; onChoose: () => void }) {
  const { node, x, y } = placed;
  const facts = factsOf(node);
  return (
    <g transform={`translate(${x} ${y})`} className={`node ${node.kind} ${isChosen ? "chosen" : ""} ${isFaint ? "faint" : ""}`} role="button" tabIndex={0} aria-pressed={isChosen} onClick={onChoose}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onChoose();
      }}>
      {clipped(node.name) !== node.name && <title>{node.name}</title>}
      <rect width={NODE_WIDTH} height={NODE_HEIGHT} rx={10} />
      <rect className="node-edge" width={4} height={NODE_HEIGHT - 20} x={8} y={10} rx={2} />
      <text x={22} y={22} className="node-name">{clipped(node.name)}</text>
      <text x={22} y={40} className="node-facts">{facts}</text>
    </g>
  );
}

const context = document.createElement("canvas").getContext("2d");
const fitting = new Map<string, string>();

/** As much of a name as its box is wide. */
function clipped(text: string): string {
  const known = fitting.get(text);
  if (known !== undefined) return known;
  if (context === null) return text;
  context.font = `600 14px ${getComputedStyle(document.body).fontFamily}`;
  let shown = text;
  while (shown.length > 1 && context.measureText(shown).width > NAME_PX) shown = `${shown.replace(/…$/, "").slice(0, -1)}…`;
  fitting.set(text, shown);
  return shown;
}
