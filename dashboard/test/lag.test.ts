import { expect, test } from "vitest";
import { forecast, rates, remember, stillFor } from "../src/lib/lag";

test("a group catches up at its net rate", () => {
  expect(forecast([{ atMs: 0, lag: 1000, done: 0 }, { atMs: 20_000, lag: 500, done: 700 }])).toEqual({ kind: "in", ms: 20_000 });
});

test("a group that reads less than arrives never does", () => {
  expect(forecast([{ atMs: 0, lag: 10, done: 0 }, { atMs: 20_000, lag: 20, done: 5 }]).kind).toBe("never");
});

test("a group that has only what is on its way keeps pace", () => {
  expect(forecast([{ atMs: 0, lag: 100, done: 0 }, { atMs: 20_000, lag: 150, done: 2000 }]).kind).toBe("pace");
});

test("a group that commits now and then keeps pace, whenever it is looked at", () => {
  // 100 records a second arrive, and every five seconds all are committed.
  const points = Array.from({ length: 31 }, (_, index) => ({ atMs: 1000 * index, lag: 100 * (index % 5), done: 500 * Math.floor(index / 5) }));
  for (let from = 0; from < 15; from += 1)
    for (let to = from + 12; to < 31; to += 1) if (points[to]!.lag > 0) expect(forecast(points.slice(from, to + 1)).kind).toBe("pace");
  expect(forecast(points.slice(0, 5)).kind, "not yet stuck").toBe("unknown");
});

test("a group without members is stuck at once", () => {
  const points = [{ atMs: 0, lag: 10, done: 5 }, { atMs: 3000, lag: 20, done: 5 }];
  expect([forecast(points).kind, forecast(points, true).kind]).toEqual(["unknown", "stuck"]);
});

test("a group whose position stands still while lag grows is stuck", () => {
  expect(forecast([{ atMs: 0, lag: 10, done: 5 }, { atMs: 20_000, lag: 20, done: 5 }])).toEqual({ kind: "stuck", forMs: 20_000 });
});

test("lag that does not grow is stuck only after a while", () => {
  expect(forecast([{ atMs: 0, lag: 10, done: 5 }, { atMs: 20_000, lag: 10, done: 5 }]).kind).toBe("unknown");
  expect(forecast([{ atMs: 0, lag: 10, done: 5 }, { atMs: 40_000, lag: 10, done: 5 }])).toEqual({ kind: "stuck", forMs: 40_000 });
});

test("too short to tell, and done", () => {
  expect(forecast([]).kind).toBe("unknown");
  expect(forecast([{ atMs: 0, lag: 10, done: 0 }, { atMs: 1000, lag: 5, done: 5 }]).kind).toBe("unknown");
  expect(forecast([{ atMs: 0, lag: 0, done: 0 }]).kind).toBe("done");
});

test("since when nothing moved", () => {
  expect(stillFor([{ atMs: 0, lag: 1, done: 1 }, { atMs: 5, lag: 1, done: 2 }, { atMs: 9, lag: 3, done: 2 }])).toBe(4);
});

test("what arrives and what is done", () => {
  expect(rates([{ atMs: 0, lag: 10, done: 0 }, { atMs: 10_000, lag: 30, done: 50 }])).toEqual({ done: 5, arrived: 7 });
  expect(rates([{ atMs: 0, lag: 10, done: 0 }])).toBeNull();
});

test("a page that is opened again has a past, and a reset begins anew", () => {
  remember("g", { atMs: 1000, lag: 10, done: 100 });
  expect(remember("g", { atMs: 1100, lag: 10, done: 100 })).toHaveLength(1);
  expect(remember("g", { atMs: 3000, lag: 5, done: 105 })).toHaveLength(2);
  expect(remember("g", { atMs: 5000, lag: 110, done: 0 })).toHaveLength(1);
});
