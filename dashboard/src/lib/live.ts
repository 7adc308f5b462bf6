/** The live connection: one WebSocket, a snapshot each second, samples into the ring, and on to another gateway when needed. */
import { useSyncExternalStore } from "react";
import { gateways, get } from "./api";
import { SeriesRing } from "./ring";
import type { History, Overview } from "./types";

export const WINDOW_MS = 600_000;
const SILENCE_MS = 8_000;
/** A gateway that nobody looked at takes its first sample when it is asked. */
const FIRST_MS = 25_000;

export type Connection = "connecting" | "live" | "paused" | "lost";

export interface Live {
  connection: Connection;
  gateway: string;
  overview: Overview | null;
  receivedAt: number;
  dropped: number;
}

interface Snapshot {
  type: string;
  sequence: number;
  time_ms: number;
  dropped: number;
  data: Overview;
}

export const ring = new SeriesRing(900);

class LiveConnection {
  private state: Live = { connection: "connecting", gateway: gateways.current, overview: null, receivedAt: 0, dropped: 0 };
  private listeners = new Set<() => void>();
  private sampleListeners = new Set<() => void>();
  private socket: WebSocket | null = null;
  private silence = 0;
  private retry = 0;
  private isPausedByPerson = false;

  start(): void {
    document.addEventListener("visibilitychange", () => {
      // A hidden page costs the cluster nothing. What it missed is read when it is seen again.
      if (document.hidden) this.close();
      else if (!this.isPausedByPerson) this.open();
    });
    this.open();
  }

  setPaused(paused: boolean): void {
    this.isPausedByPerson = paused;
    if (paused) {
      this.close();
      this.change({ connection: "paused" });
    } else this.open();
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Called for each sample, without rendering anything. */
  onSample(listener: () => void): () => void {
    this.sampleListeners.add(listener);
    return () => this.sampleListeners.delete(listener);
  }

  get = (): Live => this.state;

  private change(change: Partial<Live>): void {
    this.state = { ...this.state, ...change };
    this.listeners.forEach((each) => each());
  }

  private open(): void {
    this.close();
    const address = gateways.current;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${address}/api/v1/live`);
    this.socket = socket;
    this.change({ connection: this.state.overview === null ? "connecting" : this.state.connection, gateway: address });
    const fail = () => {
      if (this.socket !== socket) return;
      this.close();
      if (document.hidden || this.isPausedByPerson) return;
      this.change({ connection: "lost" });
      this.retry = window.setTimeout(() => this.open(), gateways.failed(address));
    };
    const listen = (patience: number) => {
      clearTimeout(this.silence);
      this.silence = window.setTimeout(fail, patience);
    };
    listen(FIRST_MS);
    socket.onopen = () => {
      socket.send(JSON.stringify({ type: "subscribe", stream: "overview", resolution_ms: 1000 }));
      void this.readPast();
    };
    socket.onclose = fail;
    socket.onerror = fail;
    socket.onmessage = (message) => {
      listen(SILENCE_MS);
      const snapshot = JSON.parse(message.data as string) as Snapshot;
      if (snapshot.type !== "snapshot") return;
      gateways.worked();
      gateways.learn(snapshot.data.cluster.gateways.map((each) => each.http));
      ring.push(snapshot.time_ms, snapshot.data.series);
      this.change({
        connection: "live",
        gateway: address,
        overview: snapshot.data,
        receivedAt: Date.now(),
        dropped: this.state.dropped + snapshot.dropped,
      });
      this.sampleListeners.forEach((each) => each());
    };
  }

  private close(): void {
    clearTimeout(this.silence);
    clearTimeout(this.retry);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  /** What the gateway kept: the past of a page that was just opened, or what it missed. */
  private async readPast(): Promise<void> {
    try {
      const past = await get<History>(`/metrics/history?seconds=${WINDOW_MS / 1000}`);
      ring.load(past.times_ms, past.series);
      this.sampleListeners.forEach((each) => each());
    } catch {
      // The charts begin now.
    }
  }
}

export const live = new LiveConnection();

export function useLive(): Live {
  return useSyncExternalStore(live.subscribe, live.get);
}

/** The options of a `drmq` command that reach this cluster. */
export function bootstrapOption(overview: Overview | null): string {
  const brokers = (overview?.brokers ?? []).filter((each) => !each.is_fenced);
  const first = (brokers.find((each) => each.is_up) ?? brokers[0]);
  if (first === undefined || (first.port === 9092 && /^(localhost|127\.0\.0\.1)$/.test(first.host))) return "";
  return ` -b ${first.host}:${first.port}`;
}
