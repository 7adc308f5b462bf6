import { expect, test } from "vitest";
import { breakable, bytes, chosen, clock, count, duration, milliseconds, percent, quoted, rate, short, time } from "../src/lib/format";

test("numbers", () => {
  expect([0, 7, 999, 1000, 1234, 999_999, 1_500_000, 2e9].map(short)).toEqual(["0", "7", "999", "1 k", "1.23 k", "1 M", "1.5 M", "2 G"]);
  expect([0.004, 0.5, 12.34, 100].map(short)).toEqual(["0", "0.5", "12.3", "100"]);
  expect(short(null)).toBe("–");
  expect(count(1234567)).toBe("1,234,567");
  expect(rate(undefined)).toBe("–");
  expect(percent(0.042)).toBe("4.2 %");
});

test("sizes", () => {
  expect([0, 1023, 1024, 1536, 1048576 * 3.5, 1024 ** 4 * 2000].map(bytes)).toEqual(["0 B", "1023 B", "1 KiB", "1.5 KiB", "3.5 MiB", "2000 TiB"]);
  expect(bytes(1024 * 1024 - 1)).toBe("1 MiB");
  chosen.isDecimal = true;
  expect([999, 1000, 1_500_000].map(bytes)).toEqual(["999 B", "1 kB", "1.5 MB"]);
  chosen.isDecimal = false;
});

test("clocks follow the choice of UTC", () => {
  chosen.isUtc = true;
  expect(clock(3_661_000)).toBe("01:01:01");
  chosen.isUtc = false;
});

test("only long names may break, after separators", () => {
  expect(breakable("flights-0")).toEqual(["flights-0"]);
  expect(breakable("payments.europe.card-authorisations.v2")).toEqual(["payments.europe.", "card-authorisations.", "v2"]);
  expect(breakable("x".repeat(80))).toEqual(["x".repeat(80)]);
});

test("times", () => {
  expect([0, 59_999, 61_000, 3_600_000, 200_000_000].map(duration)).toEqual(["0 s", "59 s", "1 min 1 s", "1 h 0 min", "2 d 7 h"]);
  expect(milliseconds(1500)).toBe("1.5 s");
  expect(time(0, "utc")).toBe("1970-01-01 00:00:00.000Z");
  expect(time(1000, "relative", 62_000)).toBe("1 min 1 s ago");
  expect(time(1e300)).toBe("1e+300");
});

test("words of a command cannot leave their quotes", () => {
  expect(quoted("orders-1.x")).toBe("orders-1.x");
  expect(quoted("")).toBe("''");
  expect(quoted("a b; rm -rf $HOME")).toBe("'a b; rm -rf $HOME'");
  expect(quoted("it's")).toBe("'it'\\''s'");
});
