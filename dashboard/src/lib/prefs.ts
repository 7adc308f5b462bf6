/** What a person chose for this browser. Storage may be forbidden; then choices last as long as the page. */
import { useSyncExternalStore } from "react";
import { chosen, type TimeStyle } from "./format";

export interface Prefs {
  density: "comfortable" | "compact";
  time: TimeStyle;
  sizes: "binary" | "decimal";
  /** Topics that are listed first. */
  pins: string[];
}

const KEY = "drmq-prefs";
const DEFAULTS: Prefs = { density: "comfortable", time: "local", sizes: "binary", pins: [] };
const listeners = new Set<() => void>();
let present: Prefs = read();
apply();

/** Formats are plain functions, without hooks. */
function apply(): void {
  chosen.isUtc = present.time === "utc";
  chosen.isDecimal = present.sizes === "decimal";
}

function read(): Prefs {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Prefs>) };
  } catch {
    return DEFAULTS;
  }
}

export function setPrefs(change: Partial<Prefs>): void {
  present = { ...present, ...change };
  apply();
  try {
    localStorage.setItem(KEY, JSON.stringify(present));
  } catch {
    // It lasts as long as the page.
  }
  listeners.forEach((each) => each());
}

export function usePrefs(): Prefs {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => present,
  );
}
