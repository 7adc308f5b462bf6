import { breakable } from "../lib/format";

/** A name that may be long: it can break after a separator, so that it does not push the other columns away. */
export function Name({ text }: { text: string }) {
  const parts = breakable(text);
  if (parts.length === 1) return text;
  return (
    <span className="name">
      {parts.map((part, index) => (
        <span key={index}>
          {index > 0 && <wbr />}
          <span className="nowrap">{part}</span>
        </span>
      ))}
    </span>
  );
}
