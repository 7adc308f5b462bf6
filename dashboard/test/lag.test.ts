import { expect, test } from "vitest";
import { forecast } from "../src/lib/lag";

test("a group catches up at its net rate", () => {
  expect(forecast([{ atMs: 0, lag: 1000, done: 0 }, { atMs: 10_000, lag: 500, done: 700 }])).toEqual({ kind: "in", ms: 10_000 });
});

test("a group that reads less than arrives never does", () => {
  expect(forecast([{ atMs: 0, lag: 10, done: 0 }, { atMs: 10_000, lag: 20, done: 5 }]).kind).toBe("never");
});

test("a group whose position stands still while lag grows is stuck", () => {
  expect(forecast([{ atMs: 0, lag: 10, done: 5 }, { atMs: 10_000, lag: 20, done: 5 }]).kind).toBe("stuck");
});

test("too short to tell, and done", () => {
  expect(forecast([]).kind).toBe("unknown");
  expect(forecast([{ atMs: 0, lag: 10, done: 0 }, { atMs: 1000, lag: 5, done: 5 }]).kind).toBe("unknown");
  expect(forecast([{ atMs: 0, lag: 0, done: 0 }]).kind).toBe("done");
});
