import { expect, test } from "vitest";
import { headerPairs, numbered } from "../src/features/topic/produced";
import { readTree } from "../src/components/JsonTree";

test("headers are lines of name=value", () => {
  expect(headerPairs("a=1\n\n b = x=y\nonly")).toEqual([{ name: "a", value: "1" }, { name: "b", value: " x=y" }, { name: "only", value: "" }]);
});

test("repeated messages can be told apart", () => {
  expect(numbered('{"n":{n}}-{n}', 7)).toBe('{"n":7}-7');
});

test("a tree of what is no JSON is none", () => {
  expect(readTree("{")).toBeUndefined();
  expect(readTree('{"a":[1,"x",null]}')).toBeTypeOf("object");
});
