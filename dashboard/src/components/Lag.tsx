import { duration, short } from "../lib/format";
import type { Group } from "../lib/types";
import { Bar } from "./Bar";

/** Lag in time, which people feel, before lag in records. `most` is the largest of the list. */
export function TimeLag({ group, most }: { group: Group; most: number }) {
  if (group.lag === 0) return <Bar share={0} text="0 s" />;
  if (group.lag_ms === null) return <span className="muted">–</span>;
  return <Bar share={group.lag_ms / Math.max(1, most)} text={duration(group.lag_ms)} tone={group.lag_ms > 60_000 ? "warn" : ""} />;
}

/** The worst first: by age of the oldest record, then by their number. */
export function byTimeLag(left: Group, right: Group): number {
  return (right.lag === 0 ? 0 : (right.lag_ms ?? 0)) - (left.lag === 0 ? 0 : (left.lag_ms ?? 0)) || (right.lag ?? 0) - (left.lag ?? 0) || left.group_id.localeCompare(right.group_id);
}

export function recordsLag(group: Group): string {
  return group.lag === null ? "–" : short(group.lag);
}
