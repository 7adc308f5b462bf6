/** The live connection: one WebSocket, a snapshot each second, samples into the ring, and on to another gateway when needed. */
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { gateways, get } from "./api";
import { SeriesRing } from "./ring";
import type { ClusterEvent, History, Overview } from "./types";

export const WINDOW_MS = 600_000;
const SILENCE_MS = 8_000;
/** A gateway that nobody looked at takes its first sample when it is asked. */
const FIRST_MS = 25_000;
const OVERVIEW = "overview";
const EVENTS_KEPT = 60;

export type Connection = "connecting" | "live" | "paused" | "lost";

export interface Live {
  connection: Connection;
  gateway: string;
  overview: Overview | null;
  receivedAt: number;
  dropped: number;
}

export interface Snapshot<T> {
  stream: string;
  sequence: number;
  time_ms: number;
  dropped: number;
  data: T;
}

type Message =
  | ({ type: "snapshot" } & Snapshot<unknown>)
  | { type: "event"; event: ClusterEvent }
  | { type: "error"; detail: string; stream?: string | null };

export interface StreamListener {
  onSnapshot: (snapshot: Snapshot<unknown>) => void;
  onError?: (detail: string) => void;
}

export const ring = new SeriesRing(900);

class LiveConnection {
  private state: Live = { connection: "connecting", gateway: gateways.current, overview: null, receivedAt: 0, dropped: 0 };
  private listeners = new Set<() => void>();
  private sampleListeners = new Set<() => void>();
  private streams = new Map<string, { resolution: number; listeners: Set<StreamListener> }>();
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

  /** Takes another stream over the same socket until the function that it returns is called. */
  stream(name: string, listener: StreamListener, resolution = 1000): () => void {
    const known = this.streams.get(name) ?? { resolution, listeners: new Set() };
    known.listeners.add(listener);
    this.streams.set(name, known);
    if (known.listeners.size === 1) this.send("subscribe", name, resolution);
    return () => {
      known.listeners.delete(listener);
      if (known.listeners.size > 0) return;
      this.streams.delete(name);
      this.send("unsubscribe", name, resolution);
    };
  }

  get = (): Live => this.state;

  private send(type: "subscribe" | "unsubscribe", stream: string, resolution: number): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return; // all streams are subscribed to when it opens
    this.socket.send(JSON.stringify({ type, stream, resolution_ms: resolution }));
  }

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
      this.send("subscribe", OVERVIEW, 1000);
      for (const [name, { resolution }] of this.streams) this.send("subscribe", name, resolution);
      void this.readPast();
    };
    socket.onclose = fail;
    socket.onerror = fail;
    socket.onmessage = (message) => {
      if (this.socket !== socket) return;
      listen(SILENCE_MS);
      this.take(JSON.parse(message.data as string) as Message, address);
    };
  }

  private take(message: Message, address: string): void {
    if (message.type === "event") this.takeEvent(message.event);
    else if (message.type === "error") {
      const wanted = message.stream ? [this.streams.get(message.stream)] : [...this.streams.values()];
      wanted.forEach((each) => each?.listeners.forEach((listener) => listener.onError?.(message.detail)));
    } else if (message.type !== "snapshot") return;
    else if (message.stream === OVERVIEW) this.takeOverview(message as Snapshot<Overview>, address);
    else this.streams.get(message.stream)?.listeners.forEach((listener) => listener.onSnapshot(message));
  }

  private takeOverview(snapshot: Snapshot<Overview>, address: string): void {
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
  }

  private takeEvent(event: ClusterEvent): void {
    const { overview } = this.state;
    if (overview === null || overview.events.some((each) => each.node_id === event.node_id && each.sequence === event.sequence && each.time_ms === event.time_ms)) return;
    const events = [event, ...overview.events].sort((left, right) => right.time_ms - left.time_ms).slice(0, EVENTS_KEPT);
    this.change({ overview: { ...overview, events } });
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

/** Listens to streams while the page is shown. Returns what the gateway said against them, if anything. */
export function useStreams(names: string[], onSnapshot: (snapshot: Snapshot<unknown>) => void, resolution = 1000): string | null {
  const [error, setError] = useState<string | null>(null);
  const latest = useRef(onSnapshot);
  latest.current = onSnapshot;
  const key = names.join("\n");
  useEffect(() => {
    setError(null);
    const ends = names.map((name) => live.stream(name, { onSnapshot: (snapshot) => latest.current(snapshot), onError: setError }, resolution));
    return () => ends.forEach((end) => end());
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key, resolution]);
  return error;
}

/** The options of a `drmq` command that reach this cluster. */
export function bootstrapOption(overview: Overview | null): string {
  const brokers = (overview?.brokers ?? []).filter((each) => !each.is_fenced);
  const first = (brokers.find((each) => each.is_up) ?? brokers[0]);
  if (first === undefined || (first.port === 9092 && /^(localhost|127\.0\.0\.1)$/.test(first.host))) return "";
  return ` -b ${first.host}:${first.port}`;
}
