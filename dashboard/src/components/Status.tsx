import { AlertIcon, CheckCircleIcon, InfoIcon, XCircleIcon, type Icon } from "@primer/octicons-react";
import type { ReactNode } from "react";

export type Tone = "good" | "warn" | "bad" | "none";

const ICONS: Record<Tone, Icon> = { good: CheckCircleIcon, warn: AlertIcon, bad: XCircleIcon, none: InfoIcon };

export function ToneIcon({ tone, size = 16 }: { tone: Tone; size?: number }) {
  const Found = ICONS[tone];
  return <Found size={size} className={`tone-${tone}`} aria-hidden />;
}

/** A word with its icon: the colour is never the only sign. */
export function Pill({ tone, children }: { tone: Tone; children: ReactNode }) {
  const Found = ICONS[tone];
  return (
    <span className={`pill ${tone}`}>
      {tone !== "none" && <Found size={14} aria-hidden />}
      {children}
    </span>
  );
}

export function Banner({ tone, children }: { tone: Tone; children: ReactNode }) {
  return (
    <div className={`banner ${tone}`}>
      <ToneIcon tone={tone} size={18} />
      <div style={{ minWidth: 0, flex: 1 }}>{children}</div>
    </div>
  );
}

export function toneOfLevel(level: string): Tone {
  if (level === "error" || level === "critical") return "bad";
  return level === "warning" ? "warn" : "none";
}

export function toneOfGroup(state: string): Tone {
  const known = state.toLowerCase();
  if (known === "stable") return "good";
  return known.includes("rebalanc") || known === "assigning" || known === "reconciling" ? "warn" : "none";
}
