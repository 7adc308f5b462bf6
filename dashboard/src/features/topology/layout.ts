/** Places the nodes of the topology in columns, so that few edges cross, and finds what is upstream and downstream of one. */
import type { TopologyEdge, TopologyNode } from "../../lib/types";

export interface Placed {
  node: TopologyNode;
  column: number;
  x: number;
  y: number;
}

export interface Layout {
  placed: Map<string, Placed>;
  edges: TopologyEdge[];
  width: number;
  height: number;
  columns: { x: number; label: string }[];
  /** Nodes that there was no room for. */
  left: number;
}

export const NODE_WIDTH = 184;
export const NODE_HEIGHT = 52;
const GAP_X = 76;
const GAP_Y = 14;
const TOP = 36;
const ROUNDS = 6;
const COLUMN_MAX = 60;
const LABELS = ["Producers", "Topics", "Groups", "Dead letters"];

/** Producers, topics, groups, and topics that only take dead letters, from left to right. */
export function columnOf(node: TopologyNode, edges: TopologyEdge[]): number {
  if (node.kind === "producer") return 0;
  if (node.kind === "group") return 2;
  const into = edges.filter((each) => each.target === node.id);
  return into.length > 0 && into.every((each) => each.kind === "dead_letters") ? 3 : 1;
}

export function layout(nodes: TopologyNode[], edges: TopologyEdge[], columnMax = COLUMN_MAX): Layout {
  const columns: TopologyNode[][] = [[], [], [], []];
  const weight = new Map<string, number>();
  for (const edge of edges) for (const end of [edge.source, edge.target]) weight.set(end, (weight.get(end) ?? 0) + 1 + (edge.rate ?? 0));
  const taking = new Map<string, TopologyEdge[]>();
  for (const edge of edges) taking.set(edge.target, [...(taking.get(edge.target) ?? []), edge]);
  for (const node of nodes) columns[columnOf(node, taking.get(node.id) ?? [])]!.push(node);
  let left = 0;
  const kept = columns.map((column) => {
    const sorted = [...column].sort((one, other) => (weight.get(other.id) ?? 0) - (weight.get(one.id) ?? 0) || one.name.localeCompare(other.name, "en", { numeric: true }));
    left += Math.max(0, sorted.length - columnMax);
    return sorted.slice(0, columnMax);
  });
  const row = new Map<string, number>();
  kept.forEach((column) => column.forEach((node, index) => row.set(node.id, index)));
  const shown = edges.filter((each) => row.has(each.source) && row.has(each.target));
  const near = new Map<string, string[]>();
  for (const edge of shown) {
    near.set(edge.source, [...(near.get(edge.source) ?? []), edge.target]);
    near.set(edge.target, [...(near.get(edge.target) ?? []), edge.source]);
  }
  // Each node goes to the middle of its neighbours, again and again, from the left and from the right.
  for (let round = 0; round < ROUNDS; round += 1) {
    const order = round % 2 === 0 ? kept : kept.toReversed();
    for (const column of order) {
      const middle = new Map(column.map((node) => {
        const rows = (near.get(node.id) ?? []).map((each) => row.get(each)!);
        return [node.id, rows.length === 0 ? row.get(node.id)! : rows.reduce((sum, each) => sum + each, 0) / rows.length];
      }));
      column.sort((one, other) => middle.get(one.id)! - middle.get(other.id)! || one.name.localeCompare(other.name, "en", { numeric: true }));
      column.forEach((node, index) => row.set(node.id, index));
    }
  }
  const used = kept.map((column, index) => ({ column, index })).filter(({ column }) => column.length > 0);
  const tallest = Math.max(1, ...kept.map((column) => column.length));
  const height = TOP + tallest * (NODE_HEIGHT + GAP_Y);
  const placed = new Map<string, Placed>();
  used.forEach(({ column, index }, at) => {
    const space = (height - TOP - column.length * (NODE_HEIGHT + GAP_Y)) / 2;
    column.forEach((node, place) => {
      placed.set(node.id, { node, column: index, x: at * (NODE_WIDTH + GAP_X), y: TOP + space + place * (NODE_HEIGHT + GAP_Y) });
    });
  });
  return {
    placed,
    edges: shown,
    width: Math.max(NODE_WIDTH, used.length * NODE_WIDTH + (used.length - 1) * GAP_X),
    height,
    columns: used.map(({ index }, at) => ({ x: at * (NODE_WIDTH + GAP_X), label: LABELS[index]! })),
    left,
  };
}

/** A node with all that flows into it and all that flows out of it. */
export function related(id: string, edges: TopologyEdge[]): Set<string> {
  const found = new Set([id]);
  for (const isDown of [true, false]) {
    const todo = [id];
    const seen = new Set([id]);
    while (todo.length > 0) {
      const at = todo.pop()!;
      for (const edge of edges) {
        const next = isDown ? (edge.source === at ? edge.target : null) : edge.target === at ? edge.source : null;
        if (next !== null && !seen.has(next)) {
          seen.add(next);
          found.add(next);
          todo.push(next);
        }
      }
    }
  }
  return found;
}
