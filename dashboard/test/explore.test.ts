import { expect, test } from "vitest";
import { bucketChange, byUnit, labelOf, unitOf } from "../src/features/explore/series";

test("series with one unit share a chart", () => {
  expect(byUnit(["produce_rate", "commit_p99_ms", "consume_rate"])).toEqual([["per second", ["produce_rate", "consume_rate"]], ["ms", ["commit_p99_ms"]]]);
});

test("a series that is not known says its unit by its name", () => {
  expect([unitOf("new_ms"), unitOf("new_bytes"), unitOf("new")]).toEqual(["ms", "bytes", "number"]);
  expect(labelOf("new_series")).toBe("New series");
});

test("buckets between two looks, also over a restart of a node", () => {
  expect(bucketChange(null, new Map())).toBeNull();
  expect(bucketChange(new Map([[1, [1, 2]], [2, [9]]]), new Map([[1, [1, 5, 1]], [2, [4]], [3, [7]]]))).toEqual([4, 3, 1]);
});
