/** The series of the overview: what they are called, and how their numbers are read. */
import { bytes, count, milliseconds, rate, short } from "../../lib/format";

export type Unit = "ms" | "bytes" | "bytes/s" | "per second" | "number";

export const UNITS: Record<Unit, (value: number | null | undefined) => string> = {
  ms: milliseconds,
  bytes: (value) => bytes(value),
  "bytes/s": (value) => (value === null || value === undefined ? "–" : `${bytes(value)}/s`),
  "per second": (value) => rate(value),
  number: (value) => (value === null || value === undefined ? "–" : Number.isInteger(value) ? count(value) : short(value)),
};

export const TITLES: Record<Unit, string> = { ms: "Durations", bytes: "Sizes", "bytes/s": "Bytes per second", "per second": "Rates", number: "Numbers" };

const KNOWN: Record<string, [string, Unit]> = {
  produce_rate: ["Messages produced", "per second"],
  consume_rate: ["Messages consumed", "per second"],
  produce_bytes: ["Bytes produced", "bytes/s"],
  consume_bytes: ["Bytes consumed", "bytes/s"],
  produce_p50_ms: ["Produce request, p50", "ms"],
  produce_p99_ms: ["Produce request, p99", "ms"],
  commit_p99_ms: ["Commit, p99", "ms"],
  fsync_p99_ms: ["Sync to disk, p99", "ms"],
  loop_p99_ms: ["Delay of the event loop, p99", "ms"],
  elections: ["Elections", "per second"],
  cpu_cores: ["Processor cores in use", "number"],
  leased: ["Records leased", "per second"],
  leases_acked: ["Leases acknowledged", "per second"],
  leases_failed: ["Leases failed", "per second"],
  leases_rejected: ["Leases rejected", "per second"],
  leases_expired: ["Leases that ran out", "per second"],
  leases_held: ["Leases out", "number"],
  leases_parked: ["Records that wait for a retry", "number"],
  dead_lettered: ["Dead letters written", "per second"],
  under_replicated: ["Under-replicated partitions", "number"],
  connections: ["Connections of clients", "number"],
  resident_bytes: ["Memory of all nodes", "bytes"],
};

export function labelOf(series: string): string {
  return KNOWN[series]?.[0] ?? series.replaceAll("_", " ").replace(/^./, (each) => each.toUpperCase());
}

/** The unit of a series; of an unknown one, what its name says. */
export function unitOf(series: string): Unit {
  const known = KNOWN[series];
  if (known) return known[1];
  if (/_ms$/.test(series)) return "ms";
  if (/_bytes$/.test(series)) return "bytes";
  return /_(rate|total)$/.test(series) ? "per second" : "number";
}

/** Series that can share an axis, in the order of the choice. */
export function byUnit(series: string[]): [Unit, string[]][] {
  const found = new Map<Unit, string[]>();
  for (const each of series) found.set(unitOf(each), [...(found.get(unitOf(each)) ?? []), each]);
  return [...found];
}

/** What was counted in each bucket of a histogram between two looks, in sum over nodes. Null without a look before. */
export function bucketChange(before: Map<number, number[]> | null, now: Map<number, number[]>): number[] | null {
  if (before === null) return null;
  const total: number[] = [];
  for (const [node, buckets] of now) {
    const old = before.get(node);
    if (!old) continue;
    buckets.forEach((value, index) => {
      const change = value - (old[index] ?? 0);
      // A node that was restarted counts anew.
      total[index] = (total[index] ?? 0) + (change < 0 ? value : change);
    });
  }
  return Array.from(total, (value) => value ?? 0);
}
