/** The last messages of several topics, the newest first. Pure: the page tells it what arrived. */
import type { MessageRecord } from "../../lib/types";

export interface TailRow {
  id: number;
  topic: string;
  record: MessageRecord;
}

export const ROWS_MAX = 2000;

export class TailBuffer {
  rows: TailRow[] = [];
  /** What was not shown: dropped by the gateway, above the cap of the page, or passed while it was held. */
  dropped = 0;
  private next = 0;
  private second = 0;
  private shownThisSecond = new Map<string, number>();

  /** `cap` is how many are shown in a second; each of the topics has its share of it. */
  constructor(
    public cap: number,
    public topics = 1,
  ) {}

  /** Takes what arrived at a time; returns how many were added. */
  take(topic: string, records: MessageRecord[], droppedBefore: number, atMs: number, isHeld: boolean): number {
    this.dropped += droppedBefore;
    if (isHeld) {
      this.dropped += records.length;
      return 0;
    }
    const second = Math.floor(atMs / 1000);
    if (second !== this.second) {
      this.second = second;
      this.shownThisSecond.clear();
    }
    const before = this.shownThisSecond.get(topic) ?? 0;
    const room = Math.max(0, Math.ceil(this.cap / Math.max(1, this.topics)) - before);
    // The newest of them are shown. They come partition by partition.
    const shown = room === 0 ? [] : records.toSorted((one, other) => one.timestamp_ms - other.timestamp_ms || one.offset - other.offset).slice(-room);
    this.dropped += records.length - shown.length;
    this.shownThisSecond.set(topic, before + shown.length);
    if (shown.length === 0) return 0;
    const added = shown.map((record) => ({ id: (this.next += 1), topic, record })).reverse();
    this.rows = [...added, ...this.rows].slice(0, ROWS_MAX);
    return shown.length;
  }

  clear(): void {
    this.rows = [];
    this.dropped = 0;
  }
}
