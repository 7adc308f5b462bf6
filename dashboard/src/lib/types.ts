/** What the HTTP API sends, as in `drmq/gateway/types.py`. */

export interface Page<T> {
  items: T[];
  next: string | null;
}
export interface Problem {
  title: string;
  status: number;
  detail: string;
  code?: string | null;
  advice?: string | null;
  retriable?: boolean;
}
export type Health = "healthy" | "degraded" | "down";
export interface Cluster {
  cluster_id: string;
  status: Health;
  reason: string;
  controller_id: number | null;
  brokers_up: number;
  brokers_total: number;
  topic_count: number;
  partition_count: number;
  leaderless: number;
  under_replicated: number;
  features: { name: string; level: number }[];
  gateways: { node_id: number; http: string }[];
  version: string;
  time_ms: number;
}
export interface Broker {
  node_id: number;
  host: string;
  port: number;
  rack: string | null;
  is_fenced: boolean;
  is_controller: boolean;
  is_up: boolean;
  leaders: number | null;
  followers: number | null;
  log_bytes: number | null;
  cpu_share: number | null;
  resident_bytes: number | null;
  uptime_ms: number | null;
  connections: number | null;
  http: string | null;
}
export interface Counter {
  name: string;
  labels: Record<string, string>;
  value: number;
  buckets: number[];
}
export interface Setting {
  name: string;
  value: string | null;
  source: string;
  is_default: boolean;
  read_only: boolean;
  documentation: string | null;
}
export interface BrokerDetail {
  broker: Broker;
  counters: Counter[];
  settings: Setting[];
}
export interface ClusterEvent {
  time_ms: number;
  node_id: number;
  sequence: number;
  level: string;
  source: string;
  text: string;
}
export interface Replica {
  node_id: number;
  role: "leader" | "voter" | "observer";
  end_offset: number | null;
  lag: number | null;
  caught_up_ms: number | null;
}
export interface RaftGroup {
  topic: string;
  partition: number;
  leader: number | null;
  term: number;
  high_watermark: number;
  in_sync: number[];
  replicas: Replica[];
}
export interface Topic {
  name: string;
  id: string;
  is_internal: boolean;
  partitions: number;
  replicas: number;
  size_bytes: number | null;
  records: number;
  leaderless: number;
  under_replicated: number;
}
export interface Partition {
  partition: number;
  leader: number | null;
  leader_epoch: number;
  replicas: number[];
  in_sync: number[];
  start_offset: number | null;
  end_offset: number | null;
  size_bytes: number | null;
}
export interface Group {
  group_id: string;
  type: string;
  state: string;
  lag: number | null;
  oldest_open_ms: number | null;
  held: number | null;
  parked: number | null;
}
export interface Member {
  member_id: string;
  client_id: string;
  host: string;
  assignments: [string, number][];
}
export interface GroupPartition {
  topic: string;
  partition: number;
  committed: number | null;
  end_offset: number | null;
  lag: number | null;
  member: string | null;
  held: number | null;
  parked: number | null;
}
export interface GroupDetail {
  group: Group;
  members: Member[];
  partitions: GroupPartition[];
}
export interface ResetRow {
  topic: string;
  partition: number;
  before: number | null;
  after: number;
}
export interface RecordHeader {
  name: string;
  value: string | null;
  format: string;
}
export interface MessageRecord {
  partition: number;
  offset: number;
  timestamp_ms: number;
  key: string | null;
  value: string | null;
  headers: RecordHeader[];
  key_format: string;
  value_format: string;
  size_bytes: number;
  is_truncated: boolean;
}
export interface RecordPage {
  items: MessageRecord[];
  next: string | null;
  scanned: number;
  found: number;
  done: boolean;
}
export interface History {
  times_ms: number[];
  series: Record<string, (number | null)[]>;
}
export interface Overview {
  cluster: Cluster;
  brokers: Broker[];
  series: Record<string, number>;
  events: ClusterEvent[];
}
