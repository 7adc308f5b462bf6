/** When a group will have caught up, from its lag at several times. */
export interface LagPoint {
  atMs: number;
  lag: number;
  /** The sum of its positions. */
  done: number;
}

export type Forecast = { kind: "unknown" | "done" | "pace" | "never" } | { kind: "stuck"; forMs: number } | { kind: "in"; ms: number };

/** Many clients commit every five seconds only: lag rises until then, and drops. A shorter look would take that for a trend. */
const SPAN_MS = 12_000;
/** A group without members does nothing, so a look is enough. */
const EMPTY_SPAN_MS = 2_000;
const WINDOW_MS = 60_000;
const PACE_MS = 2_000;
const KEPT_MS = 600_000;
/** Without any move for so long, lag that does not even grow counts as stuck, too. */
const STILL_MS = 30_000;

export function forecast(points: LagPoint[], isEmpty = false): Forecast {
  const last = points.at(-1);
  if (last === undefined) return { kind: "unknown" };
  if (last.lag === 0) return { kind: "done" };
  const first = points.find((each) => last.atMs - each.atMs <= WINDOW_MS)!;
  const span = last.atMs - first.atMs;
  if (span < (isEmpty ? EMPTY_SPAN_MS : SPAN_MS)) return { kind: "unknown" };
  if (last.done === first.done) return last.lag > first.lag || span > STILL_MS ? { kind: "stuck", forMs: stillFor(points) } : { kind: "unknown" };
  // The least lag of both halves: that right after a commit.
  const halves = [points.filter((each) => each.atMs >= first.atMs && each.atMs <= first.atMs + span / 2), points.filter((each) => each.atMs > first.atMs + span / 2)];
  const [before, after] = halves.map((half) => half.reduce((least, each) => (each.lag <= least.lag ? each : least))) as [LagPoint, LagPoint];
  // What is done in a few seconds is not behind: it is on its way.
  if (after.lag <= ((last.done - first.done) / span) * PACE_MS) return { kind: "pace" };
  if (after.lag >= before.lag) return { kind: "never" };
  return { kind: "in", ms: (after.lag / (before.lag - after.lag)) * (after.atMs - before.atMs) };
}

/** How long the positions have not moved. */
export function stillFor(points: LagPoint[]): number {
  const last = points.at(-1);
  if (last === undefined) return 0;
  let since = last.atMs;
  for (const each of points.toReversed()) {
    if (each.done !== last.done) break;
    since = each.atMs;
  }
  return last.atMs - since;
}

/** Records per second between the last points of a minute: what arrives, and what is done. */
export function rates(points: LagPoint[]): { arrived: number; done: number } | null {
  const last = points.at(-1);
  const first = last && points.find((each) => last.atMs - each.atMs <= WINDOW_MS);
  if (!last || !first || last.atMs - first.atMs < 1000) return null;
  const seconds = (last.atMs - first.atMs) / 1000;
  const done = last.done - first.done;
  return { done: Math.max(0, done / seconds), arrived: Math.max(0, (last.lag - first.lag + done) / seconds) };
}

/** What pages saw of each group, kept while the dashboard is open, so that a page that is opened again has a past. */
const seen = new Map<string, LagPoint[]>();

export function remember(group: string, point: LagPoint): LagPoint[] {
  const before = seen.get(group) ?? [];
  const last = before.at(-1);
  if (last && point.atMs - last.atMs < 500) return before;
  // A position that moved back was reset: what was before says nothing about now.
  const kept = last && point.done < last.done ? [] : before.filter((each) => point.atMs - each.atMs < KEPT_MS);
  const points = [...kept, point];
  seen.set(group, points);
  return points;
}
