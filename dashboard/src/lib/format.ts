/** Numbers, sizes, times and durations as people read them. */

/** What a person chose; `prefs` sets it. */
export const chosen = { isUtc: false, isDecimal: false };

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : WHOLE.format(value);
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Three significant digits with k, M, G. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size < 1000) return digits(value);
  for (const [unit, scale] of [["G", 1e9], ["M", 1e6], ["k", 1e3]] as const) {
    if (size >= scale * 0.9995) return `${digits(value / scale)} ${unit}`;
  }
  return digits(value);
}

function digits(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  const text = size >= 99.95 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const step = chosen.isDecimal ? 1000 : 1024;
  let size = value;
  for (const unit of chosen.isDecimal ? ["B", "kB", "MB", "GB", "TB"] : ["B", "KiB", "MiB", "GiB", "TiB"]) {
    // What would be shown as 1024 KiB is 1 MiB.
    if (Math.abs(size) < step - 0.5 || unit.startsWith("T")) return `${unit === "B" ? size.toFixed(0) : digits(size)} ${unit}`;
    size /= step;
  }
  return "–";
}

export function rate(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${short(value)}/s`;
}

export function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function milliseconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return value >= 1000 ? `${digits(value / 1000)} s` : `${digits(value)} ms`;
}

/** A span of time in its two largest units. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export type TimeStyle = "local" | "utc" | "relative";

export function time(ms: number, style: TimeStyle = "local", now = Date.now()): string {
  if (style === "relative") return ms > now ? "now" : `${duration(now - ms)} ago`;
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  if (style === "utc") return date.toISOString().replace("T", " ");
  const pad = (value: number, width = 2) => String(value).padStart(width, "0");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

export function clock(ms: number): string {
  const date = new Date(ms);
  if (chosen.isUtc) return date.toISOString().slice(11, 19);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((each) => String(each).padStart(2, "0")).join(":");
}

const BREAK_FROM = 24;
const PART_MIN = 12;

/** The parts between which a long name may break: after a separator, and not too short. A short name has one part. */
export function breakable(name: string): string[] {
  if (name.length <= BREAK_FROM) return [name];
  const parts = [""];
  for (const piece of name.match(/[^._-]*[._-]+|[^._-]+/g) ?? [name]) {
    if (parts.at(-1)!.length < PART_MIN) parts[parts.length - 1] += piece;
    else parts.push(piece);
  }
  return parts;
}

/** A word of a shell command. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
