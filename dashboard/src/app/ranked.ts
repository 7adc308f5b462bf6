/** What has all words in its label or kind: first what begins with the text, then what has a word that does, then the rest. */
export function ranked<T extends { label: string; kind: string }>(all: T[], text: string): T[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return all;
  const rank = ({ label }: T) => {
    const known = label.toLowerCase();
    if (known.startsWith(words[0]!)) return 0;
    return known.split(/[^a-z0-9]+/).some((each) => each.startsWith(words[0]!)) ? 1 : 2;
  };
  return all
    .filter((each) => words.every((word) => `${each.label} ${each.kind}`.toLowerCase().includes(word)))
    .sort((one, other) => rank(one) - rank(other));
}
