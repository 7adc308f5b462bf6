/** The search for messages: it lives in the address of the page, and becomes a request and a command. */
import { quoted } from "../../lib/format";

export interface Search {
  order: "newest" | "oldest";
  from: string;
  partition: string;
  key: string;
  text: string;
  pattern: string;
  header: string;
  json: string;
}

const NAMES = ["from", "partition", "key", "text", "pattern", "header", "json"] as const;
export const PAGE = 50;

export function readSearch(params: URLSearchParams): Search {
  const found: Search = { order: params.get("order") === "oldest" ? "oldest" : "newest", from: "", partition: "", key: "", text: "", pattern: "", header: "", json: "" };
  for (const name of NAMES) found[name] = params.get(name) ?? "";
  return found;
}

/** Only what differs from the default, so that addresses stay short. */
export function writeSearch(search: Search): URLSearchParams {
  const params = new URLSearchParams();
  if (search.order === "oldest") params.set("order", "oldest");
  for (const name of NAMES) if (search[name] !== "") params.set(name, search[name]);
  return params;
}

/** The query of the request for a page. Local times become milliseconds. */
export function requestQuery(search: Search, cursor: string | null, limit = PAGE): string {
  const params = writeSearch(search);
  if (search.from !== "") params.set("from", position(search.from));
  params.set("limit", String(limit));
  if (cursor !== null) params.set("cursor", cursor);
  return params.toString();
}

/** A position as the gateway reads it: dates and times become `@MILLISECONDS`. */
export function position(text: string): string {
  const trimmed = text.trim();
  if (/^(earliest|latest|-?\d+|@\d+)$/.test(trimmed)) return trimmed;
  const ms = Date.parse(trimmed.replace(/^@/, ""));
  return Number.isNaN(ms) ? trimmed : `@${ms}`;
}

export function isFiltered(search: Search): boolean {
  return search.key !== "" || search.text !== "" || search.pattern !== "" || search.header !== "" || search.json !== "";
}

/** The command that prints one record. */
export function recordCommand(topic: string, partition: number, offset: number): string {
  return `drmq consume ${quoted(topic)} --from ${partition}:${offset} -p ${partition} -n 1 -o json`;
}
