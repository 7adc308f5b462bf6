import { expect, test } from "vitest";
import { ALL_LETTERS, isAll, letterCommand, letterFilter, letterQuery, readLetters, writeLetters } from "../src/components/letters/search";

const SOME = { ...ALL_LETTERS, reason: "it's rejected", topic: "orders", attempts_min: "3" };

test("a search goes into an address and comes back", () => {
  expect(readLetters(writeLetters(SOME))).toEqual(SOME);
  expect(writeLetters(ALL_LETTERS).toString()).toBe("");
  expect(isAll(readLetters(new URLSearchParams("other=1&reason=%20")))).toBe(true);
});

test("a request names the origin, and a redrive has numbers as numbers", () => {
  expect(letterQuery(SOME)).toBe("reason=it%27s+rejected&attempts_min=3&origin_topic=orders");
  expect(letterFilter(SOME)).toEqual({ reason: "it's rejected", topic: "orders", attempts_min: 3 });
  expect(letterFilter(ALL_LETTERS)).toEqual({});
});

test("the command means the same letters", () => {
  expect(letterCommand("redrive", "dlq.a", SOME, 5)).toBe("drmq dlq redrive dlq.a --reason 'it'\\''s rejected' --topic orders --attempts-min 3 --count 5");
  expect(letterCommand("show", "dlq.a", { ...ALL_LETTERS, group: "a" })).toBe("drmq dlq show a");
});
