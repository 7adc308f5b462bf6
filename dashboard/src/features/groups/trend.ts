/** The lag of a group while it is watched: a ring for the charts, and what follows from it. */
import { useEffect, useMemo, useState } from "react";
import { forecast, rates, remember, type Forecast, type LagPoint } from "../../lib/lag";
import type { GroupDetail } from "../../lib/types";
import { watched, type Watched } from "../../lib/watched";

export interface Trend {
  forecast: Forecast;
  rates: { arrived: number; done: number } | null;
  source: Watched;
}

const GAP_S = 30;

export function useTrend(group: string, found: GroupDetail | undefined, atMs: number): Trend {
  const source = useMemo(() => watched(`group ${group}`), [group]);
  const [points, setPoints] = useState<LagPoint[]>([]);
  useEffect(() => {
    if (!found || found.group.lag === null || atMs === 0) return;
    // What a lease group has done behind its first open record shows in its lag only.
    const ends = found.partitions.reduce((sum, each) => sum + (each.end_offset ?? 0), 0);
    const next = remember(group, { atMs, lag: found.group.lag, done: ends - found.group.lag });
    const [last, before] = [next.at(-1)!, next.at(-2)];
    const seconds = before ? (last.atMs - before.atMs) / 1000 : Infinity;
    const isNear = before !== undefined && seconds < GAP_S;
    source.push(atMs, {
      lag: found.group.lag,
      done: isNear ? Math.max(0, (last.done - before.done) / seconds) : null,
      arrived: isNear ? Math.max(0, (last.done + last.lag - before.done - before.lag) / seconds) : null,
    });
    setPoints(next);
  }, [group, found, atMs, source]);
  return { forecast: forecast(points, found?.members.length === 0), rates: rates(points), source };
}
