import { expect, test } from "vitest";
import { hex, pretty, shown } from "../src/lib/decode";

test("JSON is indented and keeps every digit", () => {
  expect(pretty('{"id":12345678901234567890,"a":[1,{"b":"x,{}\\""}],"e":{},"f":[ ]}')).toBe(
    '{\n  "id": 12345678901234567890,\n  "a": [\n    1,\n    {\n      "b": "x,{}\\""\n    }\n  ],\n  "e": {},\n  "f": []\n}',
  );
  expect(pretty("{broken")).toBe("{broken");
});

test("deep JSON is shown", () => {
  const deep = "[".repeat(3000) + "]".repeat(3000);
  expect(pretty(deep).replace(/\s/g, "")).toBe(deep);
});

test("every form of bytes and of text", () => {
  const text = { text: "héllo", format: "text" };
  expect(shown(text, "auto")).toBe("héllo");
  expect(shown(text, "base64")).toBe("aMOpbGxv");
  expect(shown(text, "hex")).toContain("68 c3 a9 6c 6c 6f");
  const raw = { text: "/wBhYg==", format: "base64" };
  expect(shown(raw, "auto")).toBe("/wBhYg==");
  expect(shown(raw, "text")).toBe("\ufffd\u0000ab");
  expect(shown(raw, "hex")).toBe(`00000000  ff 00 61 62${" ".repeat(36)}  ..ab`);
  expect(shown({ text: null, format: "null" }, "json")).toBe("");
  expect(hex(new Uint8Array(17)).split("\n")).toHaveLength(2);
});
