import { path } from "../../lib/api";
import { plural, short } from "../../lib/format";
import type { TopologyNode } from "../../lib/types";

/** The page of a node, if it has one. */
export function addressOf(node: TopologyNode): string | null {
  if (node.kind === "topic") return path`/topics/${node.name}`;
  return node.kind === "group" ? path`/groups/${node.name}` : null;
}

/** The second line of a node. */
export function factsOf(node: TopologyNode): string {
  if (node.kind === "topic") return node.partitions === null ? "topic" : `topic, ${plural(node.partitions, "partition")}`;
  if (node.kind === "producer") return "producer";
  const kind = node.type === "share" ? "lease group" : "group";
  return node.lag === null ? kind : node.lag === 0 ? `${kind}, caught up` : `${kind}, ${short(node.lag)} behind`;
}
