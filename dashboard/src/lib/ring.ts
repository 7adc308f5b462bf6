/** The last samples of many series in typed arrays, outside React: a sample costs no rendering and no garbage. */
export class SeriesRing {
  private times: Float64Array;
  private values = new Map<string, Float64Array>();
  private start = 0;
  private count = 0;

  constructor(readonly capacity: number) {
    this.times = new Float64Array(capacity);
  }

  get length(): number {
    return this.count;
  }

  /** The time of the last sample, or 0. */
  get lastTime(): number {
    return this.count === 0 ? 0 : this.times[(this.start + this.count - 1) % this.capacity]!;
  }

  /** The time of the first sample, or 0. */
  get firstTime(): number {
    return this.count === 0 ? 0 : this.times[this.start]!;
  }

  /** Adds a sample. One that is not newer than the last is ignored: history and live data overlap. */
  push(timeMs: number, sample: Record<string, number | null | undefined>): boolean {
    if (timeMs <= this.lastTime) return false;
    const at = (this.start + this.count) % this.capacity;
    if (this.count === this.capacity) this.start = (this.start + 1) % this.capacity;
    else this.count += 1;
    this.times[at] = timeMs;
    for (const array of this.values.values()) array[at] = NaN;
    for (const [name, value] of Object.entries(sample)) {
      let array = this.values.get(name);
      if (array === undefined) {
        array = new Float64Array(this.capacity).fill(NaN);
        this.values.set(name, array);
      }
      array[at] = value ?? NaN;
    }
    return true;
  }

  clear(): void {
    this.start = 0;
    this.count = 0;
    this.values.clear();
  }

  /** Puts samples that a gateway kept in the place of all others, without losing newer ones. */
  load(timesMs: number[], series: Record<string, (number | null)[]>): void {
    const kept: [number, Record<string, number | null>][] = [];
    const newest = timesMs.at(-1) ?? 0;
    for (let index = 0; index < this.count; index += 1) {
      const at = (this.start + index) % this.capacity;
      const time = this.times[at]!;
      if (time > newest || time < (timesMs[0] ?? Infinity)) {
        const sample: Record<string, number | null> = {};
        for (const [name, array] of this.values) sample[name] = Number.isNaN(array[at]) ? null : array[at]!;
        kept.push([time, sample]);
      }
    }
    const first = timesMs[0] ?? Infinity;
    this.clear();
    for (const [time, sample] of kept) if (time < first) this.push(time, sample);
    timesMs.forEach((time, index) => {
      const sample: Record<string, number | null> = {};
      for (const [name, values] of Object.entries(series)) sample[name] = values[index] ?? null;
      this.push(time, sample);
    });
    for (const [time, sample] of kept) if (time >= first) this.push(time, sample);
  }

  /** Times in seconds and the values of some series since a time, the oldest first, as charts want them. */
  view(names: string[], sinceMs = 0): [number[], ...(number | null)[][]] {
    const times: number[] = [];
    const columns: (number | null)[][] = names.map(() => []);
    for (let index = 0; index < this.count; index += 1) {
      const at = (this.start + index) % this.capacity;
      const time = this.times[at]!;
      if (time < sinceMs) continue;
      times.push(time / 1000);
      names.forEach((name, column) => {
        const value = this.values.get(name)?.[at];
        columns[column]!.push(value === undefined || Number.isNaN(value) ? null : value);
      });
    }
    return [times, ...columns];
  }
}
