import { expect, test } from "vitest";
import { ranked } from "../src/app/ranked";

const ALL = [["Explore", "page"], ["Create a topic", "action"], ["orders", "topic"], ["new-orders", "topic"], ["billing", "group"]].map(([label, kind]) => ({ label: label!, kind: kind! }));
const labels = (text: string) => ranked(ALL, text).map((each) => each.label);

test("what begins with the text comes first, then a word that does", () => {
  expect(labels("or")).toEqual(["orders", "new-orders", "Explore"]);
  expect(labels("")).toHaveLength(5);
});

test("all words must be in the label or the kind", () => {
  expect(labels("orders topic")).toEqual(["orders", "new-orders"]);
  expect(labels("group")).toEqual(["billing"]);
  expect(labels("nothing")).toEqual([]);
});
