/** Groups of the list of Raft groups, which is asked for again every few seconds. */
import type { RaftGroup } from "./types";

/** A group that was chosen, in its present state; as it was when chosen if the list does not have it now. */
export function present(chosen: RaftGroup | null, rows: RaftGroup[]): RaftGroup | null {
  if (chosen === null) return null;
  return rows.find((each) => each.topic === chosen.topic && each.partition === chosen.partition) ?? chosen;
}
