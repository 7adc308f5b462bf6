import { expect, test } from "vitest";
import { layout, related } from "../src/features/topology/layout";
import type { TopologyEdge, TopologyNode } from "../src/lib/types";

const node = (id: string): TopologyNode => ({ id, kind: id[0] === "p" ? "producer" : id[0] === "t" || id[0] === "d" ? "topic" : "group", name: id, type: null, partitions: null, lag: null });
const edge = (source: string, target: string, kind: TopologyEdge["kind"] = "consumes"): TopologyEdge => ({ source, target, kind, rate: 1, lag: null });

const NODES = ["p1", "p2", "t1", "t2", "g1", "g2", "d1"].map(node);
const EDGES = [edge("p1", "t2", "produces"), edge("p2", "t1", "produces"), edge("t1", "g2"), edge("t2", "g1"), edge("g1", "d1", "dead_letters")];

test("records flow from left to right, and dead letters have a column of their own", () => {
  const { placed, columns, left } = layout(NODES, EDGES);
  expect(columns.map((each) => each.label)).toEqual(["Producers", "Topics", "Groups", "Dead letters"]);
  for (const each of EDGES) expect(placed.get(each.source)!.x).toBeLessThan(placed.get(each.target)!.x);
  expect(left).toBe(0);
});

test("neighbours are on one line where they can be", () => {
  const { placed } = layout(NODES, EDGES);
  expect(placed.get("p1")!.y).toBe(placed.get("t2")!.y);
  expect(placed.get("t2")!.y).toBe(placed.get("g1")!.y);
});

test("a column has room for the busiest, and says how many are left out", () => {
  const nodes = [...Array.from({ length: 500 }, (_, index) => node(`t${index}`)), node("g1")];
  const { placed, left } = layout(nodes, [edge("t499", "g1")], 60);
  expect(placed.has("t499")).toBe(true);
  expect(left).toBe(440);
});

test("upstream and downstream, but not the neighbours of neighbours", () => {
  const edges = [...EDGES, edge("t2", "g2")];
  expect([...related("t2", edges)].sort()).toEqual(["d1", "g1", "g2", "p1", "t2"]);
  expect([...related("g2", edges)].sort()).toEqual(["g2", "p1", "p2", "t1", "t2"]);
});
