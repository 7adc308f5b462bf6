/** What the form for new messages makes of its fields. */

/** One header per line, `name=value`. */
export function headerPairs(text: string): { name: string; value: string }[] {
  return text
    .split("\n")
    .filter((each) => each.trim() !== "")
    .map((each) => {
      const at = each.indexOf("=");
      return at < 0 ? { name: each.trim(), value: "" } : { name: each.slice(0, at).trim(), value: each.slice(at + 1) };
    });
}

/** `{n}` stands for the number of the message, so that repeated ones can be told apart. */
export function numbered(text: string, index: number): string {
  return text.replaceAll("{n}", String(index));
}
