import { expect, test } from "vitest";
import { ROWS_MAX, TailBuffer } from "../src/features/tail/buffer";
import type { MessageRecord } from "../src/lib/types";

const records = (first: number, count: number) => Array.from({ length: count }, (_, index) => ({ offset: first + index, timestamp_ms: first + index }) as MessageRecord);

test("the newest are first, and the oldest are forgotten", () => {
  const buffer = new TailBuffer(10_000);
  buffer.take("a", records(0, 3), 0, 0, false);
  buffer.take("b", records(7, 1), 0, 0, false);
  expect(buffer.rows.map((each) => [each.topic, each.record.offset])).toEqual([["b", 7], ["a", 2], ["a", 1], ["a", 0]]);
  buffer.take("a", records(10, ROWS_MAX), 0, 1000, false);
  expect(buffer.rows).toHaveLength(ROWS_MAX);
  expect(buffer.rows.at(-1)!.record.offset).toBe(10);
});

test("the cap of a second drops the older ones and says so", () => {
  const buffer = new TailBuffer(5);
  expect(buffer.take("a", records(0, 4), 2, 100, false)).toBe(4);
  expect(buffer.take("a", records(4, 3), 0, 900, false)).toBe(1);
  expect(buffer.rows[0]!.record.offset).toBe(6);
  expect(buffer.take("a", records(9, 1), 0, 950, false)).toBe(0);
  expect(buffer.dropped).toBe(5);
  expect(buffer.take("a", records(9, 1), 0, 1000, false)).toBe(1);
});

test("a busy topic leaves room for the others", () => {
  const buffer = new TailBuffer(10, 2);
  buffer.take("busy", records(0, 100), 0, 0, false);
  expect(buffer.take("quiet", records(0, 1), 0, 10, false)).toBe(1);
  expect(buffer.rows).toHaveLength(6);
});

test("what passes while it is held is counted and not shown", () => {
  const buffer = new TailBuffer(5);
  buffer.take("a", records(0, 2), 1, 0, true);
  expect(buffer.rows).toHaveLength(0);
  expect(buffer.dropped).toBe(3);
});
