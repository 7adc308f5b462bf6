import { expect, test } from "vitest";
import { SeriesRing } from "../src/lib/ring";

test("the last samples are kept, the oldest first", () => {
  const ring = new SeriesRing(3);
  for (const at of [1000, 2000, 3000, 4000]) ring.push(at, { a: at / 1000 });
  expect(ring.view(["a"])).toEqual([[2, 3, 4], [2, 3, 4]]);
  expect(ring.length).toBe(3);
});

test("a place that is used again keeps nothing of the sample before", () => {
  const ring = new SeriesRing(2);
  ring.push(1000, { a: 1, b: 1 });
  ring.push(2000, { a: 2, b: 2 });
  ring.push(3000, { a: 3 });
  expect(ring.view(["a", "b"])).toEqual([[2, 3], [2, 3], [2, null]]);
});

test("a series that begins late has no values before", () => {
  const ring = new SeriesRing(4);
  ring.push(1000, { a: 1 });
  ring.push(2000, { a: 2, b: 0 });
  expect(ring.view(["b", "unknown"])).toEqual([[1, 2], [null, 0], [null, null]]);
});

test("samples that are not newer are ignored", () => {
  const ring = new SeriesRing(4);
  expect(ring.push(2000, { a: 1 })).toBe(true);
  expect(ring.push(2000, { a: 9 })).toBe(false);
  expect(ring.push(1000, { a: 9 })).toBe(false);
  expect(ring.view(["a"])).toEqual([[2], [1]]);
});

test("the past is put before and between what is there", () => {
  const ring = new SeriesRing(10);
  ring.push(1000, { a: 1 });
  ring.push(6000, { a: 6 });
  ring.load([3000, 4000], { a: [3, null] });
  expect(ring.view(["a"])).toEqual([[1, 3, 4, 6], [1, 3, null, 6]]);
  ring.load([], {});
  expect(ring.view(["a"])[0]).toEqual([1, 3, 4, 6]);
});

test("a view begins at a time", () => {
  const ring = new SeriesRing(10);
  for (const at of [1000, 2000, 3000]) ring.push(at, { a: 1 });
  expect(ring.view(["a"], 2000)[0]).toEqual([2, 3]);
});
