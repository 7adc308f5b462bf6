/** Samples that a page takes itself, by name. They are kept while the dashboard is open, so that a page that is opened again has a past. */
import { SeriesRing } from "./ring";

export class Watched {
  readonly ring = new SeriesRing(600);
  private listeners = new Set<() => void>();

  onSample = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  push(atMs: number, sample: Record<string, number | null | undefined>): void {
    if (this.ring.push(atMs, sample)) this.listeners.forEach((each) => each());
  }
}

const KEPT_MAX = 50;
const all = new Map<string, Watched>();

export function watched(name: string): Watched {
  const found = all.get(name) ?? new Watched();
  all.delete(name);
  all.set(name, found);
  if (all.size > KEPT_MAX) all.delete(all.keys().next().value!);
  return found;
}
