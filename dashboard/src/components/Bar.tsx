/** A bar with its number. `share` is 0 to 1; the text says the same in words. */
export function Bar({ share, text, tone = "" }: { share: number; text: string; tone?: "" | "warn" | "bad" }) {
  const width = `${Math.min(100, Math.max(share > 0 ? 2 : 0, share * 100))}%`;
  return (
    <div className="bar-cell">
      <div className={`bar ${tone}`} aria-hidden>
        <span style={{ width }} />
      </div>
      <span className="value">{text}</span>
    </div>
  );
}
