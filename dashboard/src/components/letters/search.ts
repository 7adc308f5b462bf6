/** Which dead letters are meant: in the address of the page, in a request, and as options of a `drmq` command. */
import { quoted } from "../../lib/format";
import type { LetterFilter } from "../../lib/types";

export interface LetterSearch {
  reason: string;
  key: string;
  value_contains: string;
  topic: string;
  group: string;
  attempts_min: string;
}

const NAMES = ["reason", "key", "value_contains", "topic", "group", "attempts_min"] as const;
const OPTIONS: Record<string, string> = {
  reason: "--reason", key: "--key", value_contains: "--value-contains", topic: "--topic", attempts_min: "--attempts-min",
};
export const ALL_LETTERS: LetterSearch = { reason: "", key: "", value_contains: "", topic: "", group: "", attempts_min: "" };

export function readLetters(params: URLSearchParams): LetterSearch {
  return Object.fromEntries(NAMES.map((name) => [name, params.get(name) ?? ""])) as unknown as LetterSearch;
}

export function writeLetters(search: LetterSearch): URLSearchParams {
  const params = new URLSearchParams();
  for (const name of NAMES) if (search[name].trim() !== "") params.set(name, search[name].trim());
  return params;
}

/** The filter as the API takes it, with only what is set. */
export function letterFilter(search: LetterSearch): LetterFilter {
  const found: Record<string, string | number> = {};
  for (const name of NAMES) {
    const text = search[name].trim();
    if (text !== "") found[name] = name === "attempts_min" ? Number(text) : text;
  }
  return found as LetterFilter;
}

/** The same as parameters of a request. There `topic` is the dead-letter topic itself. */
export function letterQuery(search: LetterSearch): string {
  const params = writeLetters(search);
  const topic = params.get("topic");
  params.delete("topic");
  if (topic !== null) params.set("origin_topic", topic);
  return params.toString();
}

export function isAll(search: LetterSearch): boolean {
  return NAMES.every((name) => search[name].trim() === "");
}

/** A command of `drmq dlq`, which takes a group as a name instead of an option. */
export function letterCommand(verb: string, topic: string, search: LetterSearch, count: number | null = null): string {
  const options = NAMES.filter((name) => OPTIONS[name] && search[name].trim() !== "").map((name) => `${OPTIONS[name]} ${quoted(search[name].trim())}`);
  return [`drmq dlq ${verb}`, quoted(search.group.trim() || topic), ...options, count === null ? "" : `--count ${count}`].filter(Boolean).join(" ");
}
