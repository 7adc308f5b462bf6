import { expect, test } from "vitest";
import { Gateways } from "../src/lib/gateways";

test("it moves to each of the others and comes back", () => {
  const gateways = new Gateways("a:1");
  gateways.learn(["a:1", "b:1", "c:1"]);
  const visited = [gateways.current];
  for (let times = 0; times < 3; times += 1) {
    gateways.failed();
    visited.push(gateways.current);
  }
  expect(visited).toEqual(["a:1", "b:1", "c:1", "a:1"]);
});

test("others are tried at once, and a cluster that is down is not hammered", () => {
  const gateways = new Gateways("a:1");
  gateways.learn(["a:1", "b:1"]);
  const delays = Array.from({ length: 14 }, () => gateways.failed());
  expect(delays[0]).toBeLessThan(500);
  expect(delays).toEqual([...delays].sort((left, right) => left - right));
  expect(delays.at(-1)).toBe(10_000);
  gateways.worked();
  expect(gateways.failed()).toBeLessThan(500);
});

test("a failure of a gateway that was left already does not move on again", () => {
  const gateways = new Gateways("a:1");
  gateways.learn(["a:1", "b:1", "c:1"]);
  gateways.failed("a:1");
  gateways.failed("a:1");
  expect(gateways.current).toBe("b:1");
});

test("a new list keeps the present gateway and the one that served the page", () => {
  const gateways = new Gateways("localhost:1");
  gateways.learn(["a:1", "b:1"]);
  gateways.failed();
  expect(gateways.current).toBe("a:1");
  gateways.learn(["b:1", "c:1"]);
  expect(gateways.current).toBe("a:1");
  expect(gateways.all).toEqual(["localhost:1", "b:1", "c:1", "a:1"]);
  expect(gateways.isElsewhere).toBe(true);
});

test("alone, it waits and tries again", () => {
  const gateways = new Gateways("a:1");
  expect(gateways.failed()).toBeGreaterThan(0);
  expect(gateways.current).toBe("a:1");
});
