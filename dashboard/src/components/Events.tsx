import { clock } from "../lib/format";
import { usePrefs } from "../lib/prefs";
import { time } from "../lib/format";
import type { ClusterEvent } from "../lib/types";
import { ToneIcon, toneOfLevel } from "./Status";

/** Each new partition says this once. Where room is short, the creation of its topic is enough. */
export function isFirstLeader(event: ClusterEvent): boolean {
  return event.text.includes("before: no leader") && event.text.includes("in term 1;");
}

/** Whether an event may explain a bend of a curve. The first leader of a new partition does not. */
export function isMark(event: ClusterEvent): boolean {
  if (isFirstLeader(event)) return false;
  return event.level !== "info" || /\b(elect|leader|controller|joined|removed|down|unreachable|fenced)/i.test(event.text);
}

export function EventList({ events }: { events: ClusterEvent[] }) {
  const { time: style } = usePrefs();
  return (
    <ul className="timeline">
      {events.map((event) => (
        <li key={`${event.node_id}-${event.time_ms}-${event.sequence}`}>
          <ToneIcon tone={toneOfLevel(event.level)} size={14} />
          <span className="muted" title={time(event.time_ms, style === "relative" ? "local" : style)}>
            {clock(event.time_ms)}
          </span>
          <span>
            {event.level !== "info" && <strong className={`tone-${toneOfLevel(event.level)}`}>{event.level}: </strong>}
            {event.text} <span className="muted small nowrap">node {event.node_id} · {event.source}</span>
          </span>
        </li>
      ))}
    </ul>
  );
}
