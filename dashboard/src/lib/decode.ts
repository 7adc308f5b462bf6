/** Keys and values of records in the form that a person chose. */

export type Form = "auto" | "json" | "text" | "base64" | "hex";
export const FORMS: Form[] = ["auto", "json", "text", "base64", "hex"];

/** What the gateway sent: `format` says how `text` is to be read. */
export interface Content {
  text: string | null;
  format: string;
}

export function toBytes({ text, format }: Content): Uint8Array {
  if (text === null) return new Uint8Array();
  if (format !== "base64") return new TextEncoder().encode(text);
  const raw = atob(text);
  return Uint8Array.from(raw, (each) => each.charCodeAt(0));
}

/** The content as text. JSON is indented; what is not JSON stays as it is. */
export function shown(content: Content, form: Form, indent = true): string {
  if (content.text === null) return "";
  const chosen = form === "auto" ? content.format : form;
  if (chosen === "json") {
    const text = content.format === "base64" ? new TextDecoder().decode(toBytes(content)) : content.text;
    return indent ? pretty(text) : text;
  }
  if (chosen === "hex") return hex(toBytes(content));
  if (chosen === "base64") return content.format === "base64" ? content.text : toBase64(toBytes(content));
  if (content.format === "base64") {
    return form === "auto" ? content.text : new TextDecoder().decode(toBytes(content));
  }
  return content.text;
}

/** Indents JSON without parsing it: large numbers keep all their digits, and depth cannot exhaust the stack. */
export function pretty(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const out: string[] = [];
  let depth = 0;
  let inString = false;
  for (let at = 0; at < text.length; at += 1) {
    const each = text[at]!;
    if (inString) {
      out.push(each);
      if (each === "\\") out.push(text[(at += 1)] ?? "");
      else if (each === '"') inString = false;
    } else if (each === '"') {
      inString = true;
      out.push(each);
    } else if (each === "{" || each === "[") {
      const close = /^\s*[}\]]/.exec(text.slice(at + 1, at + 20));
      if (close) {
        out.push(each, close[0].trim());
        at += close[0].length;
      } else {
        depth += 1;
        out.push(each, newline(depth));
      }
    } else if (each === "}" || each === "]") {
      depth -= 1;
      out.push(newline(depth), each);
    } else if (each === ",") out.push(each, newline(depth));
    else if (each === ":") out.push(": ");
    else if (!/\s/.test(each)) out.push(each);
  }
  return out.join("");
}

function newline(depth: number): string {
  return `\n${"  ".repeat(Math.min(depth, 40))}`;
}

export function hex(content: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < content.length; at += 16) {
    const part = content.slice(at, at + 16);
    const codes = [...part].map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const letters = [...part].map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${codes.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

function toBase64(content: Uint8Array): string {
  let raw = "";
  for (let at = 0; at < content.length; at += 8192) raw += String.fromCharCode(...content.subarray(at, at + 8192));
  return btoa(raw);
}
