/** A small curve beside a number. The number says it in words, so the curve is hidden from screen readers. */
export function Spark({ values, width = 96, height = 24 }: { values: number[]; width?: number; height?: number }) {
  if (values.length < 2) return null;
  const high = Math.max(...values);
  const low = Math.min(...values, 0);
  const x = (index: number) => (index / (values.length - 1)) * width;
  const y = (value: number) => height - 2 - ((value - low) / (high - low || 1)) * (height - 4);
  const line = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return (
    <svg width={width} height={height} aria-hidden className="spark">
      <polygon points={`0,${height} ${line} ${width},${height}`} fill="currentColor" opacity={0.12} />
      <polyline points={line} fill="none" stroke="currentColor" strokeWidth={1.5} strokeLinejoin="round" />
    </svg>
  );
}
