/** When a group will have caught up, from its lag at several times. */
export interface LagPoint {
  atMs: number;
  lag: number;
  /** The sum of its positions. */
  done: number;
}

export type Forecast = { kind: "unknown" | "done" | "stuck" | "never" } | { kind: "in"; ms: number };

const SPAN_MS = 5_000;

export function forecast(points: LagPoint[]): Forecast {
  const last = points.at(-1);
  if (last === undefined) return { kind: "unknown" };
  if (last.lag === 0) return { kind: "done" };
  const first = points.find((each) => last.atMs - each.atMs <= 60_000)!;
  const span = last.atMs - first.atMs;
  if (span < SPAN_MS) return { kind: "unknown" };
  const change = last.lag - first.lag;
  if (last.done === first.done) return { kind: change > 0 || span > 30_000 ? "stuck" : "unknown" };
  if (change >= 0) return { kind: "never" };
  return { kind: "in", ms: (last.lag / -change) * span };
}
