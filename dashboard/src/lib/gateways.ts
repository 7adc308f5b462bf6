/** Which gateway the page talks to. Pure: the connection tells it what failed, and it says where to go next. */
export class Gateways {
  private known: string[];
  private at = 0;
  private failures = 0;

  /** `own` is the gateway that served the page, as host:port. */
  constructor(readonly own: string) {
    this.known = [own];
  }

  get current(): string {
    return this.known[this.at] ?? this.own;
  }

  get all(): readonly string[] {
    return this.known;
  }

  get isElsewhere(): boolean {
    return this.current !== this.own;
  }

  /** Takes the list of a snapshot. The present gateway stays; the one that served the page is never forgotten. */
  learn(addresses: string[]): void {
    const current = this.current;
    // A page may have been opened by another name of the same node, so its own address comes first.
    this.known = [...new Set([this.own, ...addresses, current])];
    this.at = Math.max(0, this.known.indexOf(current));
  }

  /** It answered: the next failure starts counting again. */
  worked(): void {
    this.failures = 0;
  }

  /** It did not answer: go to the next one. Returns the milliseconds to wait before trying it. */
  failed(address = this.current): number {
    if (address !== this.current) return 0; // somebody else has moved on already
    this.failures += 1;
    this.at = (this.at + 1) % this.known.length;
    return this.delay();
  }

  /** Nothing while there are others to try; then longer and longer, up to ten seconds. */
  private delay(): number {
    const rounds = Math.floor((this.failures - 1) / this.known.length);
    if (this.failures % this.known.length !== 0 && rounds === 0) return 100;
    return Math.min(10_000, 500 * 2 ** Math.min(rounds, 6));
  }
}
