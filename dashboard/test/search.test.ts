import { expect, test } from "vitest";
import { position, readSearch, recordCommand, requestQuery, writeSearch } from "../src/features/topic/search";

test("a search goes into an address and comes back", () => {
  const search = readSearch(new URLSearchParams("order=oldest&from=-10&key=a%26b&text=x y&partition=0"));
  expect(readSearch(writeSearch(search))).toEqual(search);
  expect(writeSearch(readSearch(new URLSearchParams("order=newest&other=1"))).toString()).toBe("");
});

test("a page is asked for with the cursor of the page before", () => {
  const search = readSearch(new URLSearchParams("text=a"));
  expect(requestQuery(search, null)).toBe("text=a&limit=50");
  expect(requestQuery(search, "eyJ==")).toBe("text=a&limit=50&cursor=eyJ%3D%3D");
});

test("positions", () => {
  expect(["earliest", "latest", "12", "-3", "@99"].map(position)).toEqual(["earliest", "latest", "12", "-3", "@99"]);
  expect(position("2026-11-18T12:00:00Z")).toBe(`@${Date.UTC(2026, 10, 18, 12)}`);
  expect(position("noon")).toBe("noon");
});

test("the command of a record", () => {
  expect(recordCommand("my topic", 2, 17)).toBe("drmq consume 'my topic' --from 2:17 -p 2 -n 1 -o json");
});
