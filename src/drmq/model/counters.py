"""What a node counts: plain integers and histograms of integers.

The parts of a node count in integer attributes of their own, which costs an addition. Nothing is summed, named or
formatted until the counters are read. Every counter that a node reports has a row in `COUNTERS`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

BUCKET_COUNT: Final = 40
"""Bucket i of a histogram counts the values below 2^i that are in no earlier bucket; the last one all larger ones."""


class Kind(IntEnum):
    """What a counter's value means. The numbers are those of the wire."""

    COUNTER = 0
    """It only grows, from the start of the process."""
    GAUGE = 1
    """The present value."""
    HISTOGRAM = 2
    """How often values of each magnitude occurred since the start of the process."""


class Histogram:
    """Counts integers of at least 0 by their magnitude, in powers of two. Used by one thread."""

    __slots__ = ("buckets", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKET_COUNT
        self.sum = 0

    def add(self, value: int) -> None:
        bucket = value.bit_length()
        self.buckets[bucket if bucket < BUCKET_COUNT else -1] += 1
        self.sum += value


def quantile(buckets: list[int], share: float) -> int:
    """The value below which `share` of all values are, as if those of a bucket were spread evenly; 0 without values."""
    left = sum(buckets) * share
    for bucket, count in enumerate(buckets):
        if count and left <= count:
            low, high = (1 << bucket) >> 1, (1 << bucket) - 1
            return low + round((high - low) * left / count)
        left -= count
    return 0


class Sample(NamedTuple):
    """The value of one counter with one set of labels, at the time of reading."""

    name: str
    value: int
    """Of a histogram: the sum of all values."""
    labels: tuple[tuple[str, str], ...] = ()
    buckets: tuple[int, ...] = ()
    """Of a histogram: the number of values in each bucket, without the empty ones at the end."""


def sample_of(name: str, histogram: Histogram, labels: tuple[tuple[str, str], ...] = ()) -> Sample:
    """The present content of a histogram."""
    buckets = list(histogram.buckets)
    while buckets and not buckets[-1]:
        buckets.pop()
    return Sample(name, histogram.sum, labels, tuple(buckets))


class Description(NamedTuple):
    """A row of the reference."""

    kind: Kind
    text: str
    labels: tuple[str, ...] = ()


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

COUNTERS: Final[dict[str, Description]] = {
    # The door for Kafka clients
    "drmq_connections": Description(_G, "Open connections of clients."),
    "drmq_connections_accepted_total": Description(_C, "Connections of clients that were accepted."),
    "drmq_connections_refused_total": Description(
        _C, "Connections that this node closed because of a limit, a timeout or an invalid request."
    ),
    "drmq_received_bytes_total": Description(_C, "Bytes received from clients."),
    "drmq_sent_bytes_total": Description(_C, "Bytes of responses passed to the sockets of clients."),
    "drmq_unread_response_bytes": Description(_G, "Bytes of responses that clients have not read yet."),
    "drmq_partial_request_bytes": Description(_G, "Memory of requests that are received in part, or wait."),
    "drmq_requests_total": Description(_C, "Requests of clients, by API.", ("api",)),
    "drmq_request_duration_us": Description(
        _H,
        "Microseconds from the arrival of a request to its response, by API. One in 16 requests is timed for Produce, "
        "Fetch and those that lease or settle records, every request for the others. The time includes the wait for "
        "records.",
        ("api",),
    ),
    "drmq_slow_requests_total": Description(
        _C, "Requests that had no answer after `slow_request_ms`, by API, from the first one on.", ("api",)
    ),
    # Records
    "drmq_messages_produced_total": Description(_C, "Records of producers that this node appended as leader."),
    "drmq_messages_consumed_total": Description(
        _C, "Records in the batches that this node returned to readers. A batch is returned whole."
    ),
    "drmq_produced_bytes_total": Description(_C, "Bytes of batches of producers that this node appended as leader."),
    "drmq_recompressed_batches_total": Description(
        _C, "Batches of producers that this node recompressed because of the `compression.type` of their topic."
    ),
    "drmq_recompression_queued_bytes": Description(_G, "Bytes of batches that wait to be recompressed."),
    "drmq_consumed_bytes_total": Description(_C, "Bytes of batches in responses to reads."),
    "drmq_parked_partitions": Description(_G, "Partitions that reads are waiting on."),
    "drmq_waiting_requests": Description(
        _G, "Requests of clients that wait: reads for records, and members of groups for each other."
    ),
    "drmq_blocking_calls": Description(
        _G, "Calls that run on the threads for clients, or wait for one: reads from the disk, searches, codecs."
    ),
    # Partitions and elections
    "drmq_partitions": Description(_G, "Replicas on this node, by role: leader, follower or stopped.", ("role",)),
    "drmq_raft_state": Description(
        _G, "Raft groups with a replica on this node, by its state: leader, follower, candidate or stopped.", ("state",)
    ),
    "drmq_log_size_bytes": Description(
        _G,
        "Bytes of the logs on this node, by topic. The 200 largest topics have a label of their own, and the others "
        "share `(other)`.",
        ("topic",),
    ),
    "drmq_under_replicated_partitions": Description(_G, "Partitions led here of which not all replicas are in sync."),
    "drmq_replication_lag_records": Description(
        _G, "Offsets by which the replicas on another node are behind the partitions led here, in sum.", ("node",)
    ),
    "drmq_commit_duration_us": Description(
        _H,
        "Microseconds from the append of a batch by the leader until a majority has it on disk. One batch at a time is "
        "timed.",
    ),
    "drmq_uncommitted_bytes": Description(
        _G, "Bytes of producers, in partitions led here, that a majority does not have yet."
    ),
    "drmq_elections_total": Description(_C, "Elections in which a replica of this node was a candidate."),
    "drmq_leaderships_won_total": Description(_C, "Times that a replica of this node became the leader."),
    "drmq_leaderships_lost_total": Description(_C, "Times that a replica of this node stopped being the leader."),
    "drmq_truncations_total": Description(_C, "Times that uncommitted records were removed from the end of a log."),
    # Disk
    "drmq_writer_cycles_total": Description(_C, "Cycles of the writer thread: each makes its appends durable."),
    "drmq_writer_queued_bytes": Description(_G, "Bytes that wait for the writer thread."),
    "drmq_sync_duration_us": Description(_H, "Microseconds that a cycle of the writer took to make appends durable."),
    "drmq_write_failures_total": Description(_C, "Appends and syncs that failed."),
    "drmq_disk_total_bytes": Description(_G, "Size of the file system that has the data directory."),
    "drmq_disk_free_bytes": Description(_G, "Free space of that file system."),
    "drmq_journal_records_total": Description(_C, "Cycles whose appends one write to the journal made durable."),
    "drmq_journal_bytes_total": Description(_C, "Bytes written to the journal."),
    # Other nodes
    "drmq_peers": Description(_G, "Other nodes, by state: up or down.", ("state",)),
    "drmq_peer_down_total": Description(_C, "Times that another node was considered down."),
    "drmq_peer_refused_total": Description(_C, "Connections with nodes that one side refused, whichever opened them."),
    "drmq_peer_dropped_messages_total": Description(_C, "Raft messages that were dropped because a peer was too slow."),
    "drmq_peer_buffered_bytes": Description(_G, "Bytes that wait to be sent to other nodes."),
    "drmq_peer_protocol_errors_total": Description(
        _C, "Messages that were not valid, of other nodes or of other programs that connect to their port."
    ),
    # Coordinators
    "drmq_coordinator_batches_total": Description(
        _C, "Batches that the coordinators on this node appended, by internal topic.", ("topic",)
    ),
    "drmq_coordinator_records_total": Description(_C, "Records in these batches, by internal topic.", ("topic",)),
    # Lease groups
    "drmq_leased_messages_total": Description(_C, "Records that were leased to members of lease groups."),
    "drmq_lease_outcomes_total": Description(
        _C,
        "Leased records by what became of the lease: accept, release, reject, give_back or renew by the member, or "
        "expire.",
        ("outcome",),
    ),
    "drmq_lease_messages": Description(
        _G,
        "Records in the queues of lease groups, by state: held (leased), returned (available again), parked (available "
        "again at a time) or dying (their dead letter is not written yet).",
        ("state",),
    ),
    "drmq_lease_queues": Description(_G, "Queues of lease groups: a partition of a topic counts once for each group."),
    "drmq_lease_paused_queues": Description(
        _G, "Queues in which nothing new is leased, because too many records are parked or dying."
    ),
    "drmq_dead_letters_total": Description(_C, "Records that were copied to dead-letter topics."),
    "drmq_dead_letters_redriven_total": Description(_C, "Dead letters that this node moved back to their topics."),
    "drmq_dead_letters_purged_total": Description(_C, "Dead letters that were purged by requests to this node."),
    "drmq_dead_letters_waiting": Description(
        _G,
        "Dead letters that are neither moved back nor purged, by dead-letter topic, of the topics that this node looks "
        "after. At most 50 topics are looked at. Counted with the lag of groups.",
        ("topic",),
    ),
    # How far groups are behind
    "drmq_group_lag_records": Description(
        _G,
        "Records that a group has not done, by its type (classic or lease) and topic: the distance of its committed "
        "offsets from the ends of the partitions, or, in a lease group, all records that are not settled. Reported by "
        "the node that coordinates the group; of a lease group each node reports the queues that it coordinates. The "
        "200 largest rows have labels of their own, and the others share `(other)`.",
        ("group", "topic", "type"),
    ),
    "drmq_group_lag_us": Description(
        _G,
        "Microseconds since the time of the oldest record that a group has not done, or of the first record in its "
        "batch; 0 if all are done. Of `(other)`: the longest.",
        ("group", "topic", "type"),
    ),
    "drmq_group_held_records": Description(
        _G,
        "Records that members of a lease group hold at present, for the rows of `drmq_group_lag_records`.",
        ("group", "topic"),
    ),
    "drmq_group_parked_records": Description(
        _G,
        "Records of a lease group that wait for their next delivery, for the rows of `drmq_group_lag_records`.",
        ("group", "topic"),
    ),
    "drmq_group_lag_unlisted": Description(_G, "Rows of group and topic that are summed up under `(other)`."),
    "drmq_group_lag_unknown_partitions": Description(
        _G,
        "Partitions of groups whose lag is not known and not in the sums: no leader answered, or a node has more than "
        "20,000 of them.",
    ),
    "drmq_group_lag_age_us": Description(
        _G,
        "Microseconds since the lag of groups was determined. It is determined anew at most every 10 seconds, while "
        "somebody reads the counters.",
    ),
    # The process
    "drmq_loop_delay_us": Description(
        _H, "Microseconds that a timer of the event loop was late, measured several times a second."
    ),
    "drmq_process_cpu_us_total": Description(_C, "Processor time of the process, in microseconds."),
    "drmq_process_resident_bytes": Description(_G, "Memory of the process; 0 where the system does not tell."),
    "drmq_process_descriptors": Description(_G, "Open file descriptors; 0 where the system does not tell."),
    "drmq_process_uptime_us": Description(_G, "Microseconds since the node began to count."),
}

GATEWAY_COUNTERS: Final[dict[str, Description]] = {
    "drmq_gateway_node_up": Description(
        _G, "1 if the node of this gateway told its counters within 2 seconds, otherwise 0: then they are missing here."
    ),
    "drmq_gateway_requests_total": Description(
        _C,
        "HTTP requests that were answered, by operation and class of the status, as in `2xx`. What is no operation of "
        "the API, such as the files of the dashboard, is `(other)`.",
        ("route", "status"),
    ),
    "drmq_gateway_request_duration_us": Description(
        _H, "Microseconds from an HTTP request to the end of its answer, by operation.", ("route",)
    ),
    "drmq_gateway_calls_total": Description(
        _C,
        "Calls over gRPC that have ended, by method, as in `LogService/Append`, and by the name of their status. A "
        "stream counts as one call.",
        ("method", "status"),
    ),
    "drmq_gateway_call_duration_us": Description(
        _H, "Microseconds from a call over gRPC to its response, by method. Streams are not timed.", ("method",)
    ),
    "drmq_gateway_streams": Description(_G, "Open streams of gRPC."),
    "drmq_gateway_sockets": Description(_G, "Open web sockets."),
    "drmq_gateway_waiting_calls": Description(_G, "Calls to nodes that run on the gateway's threads, or wait for one."),
    "drmq_gateway_cpu_us_total": Description(_C, "Processor time of the gateway's process, in microseconds."),
    "drmq_gateway_resident_bytes": Description(
        _G, "Memory of the gateway's process; 0 where the system does not tell."
    ),
    "drmq_gateway_descriptors": Description(_G, "Its open file descriptors; 0 where the system does not tell."),
    "drmq_gateway_uptime_us": Description(_G, "Microseconds since the gateway was started."),
}
"""What a gateway exports at `/metrics`, beside the counters of its node."""

DESCRIPTIONS: Final[dict[str, Description]] = COUNTERS | GATEWAY_COUNTERS
"""Everything that `/metrics` may have."""
