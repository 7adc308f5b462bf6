"""Reads the counters of a node.

The parts of the broker count for themselves, in plain integers. Here these are given their names and labels, when they
are requested and not before. A door adds its own counters with `add`. `drmq.model.counters` describes each counter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from drmq.broker.services.partition_survey import survey
from drmq.leases import WHOLE_TOPIC
from drmq.leases.counts import total
from drmq.model.counters import Sample, sample_of
from drmq.telemetry.process_usage import descriptor_count, resident_bytes
from drmq.telemetry.sparingly import Sparingly

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

Source = Callable[[], Iterable[Sample]]


class Counters:
    """All counters of one node. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._began_ns = time.monotonic_ns()
        self._survey = Sparingly(lambda: survey(broker))
        self._descriptor_count = Sparingly(descriptor_count)
        self._sources: list[Source] = [self._records, self._partitions, self._disk, self._peers, self._coordinators]
        self._sources += [self._leases, self._process]
        self._sources += [lambda: broker.services.group_lag.samples(), lambda: broker.services.disk_space.samples()]

    def add(self, source: Source) -> None:
        """Include the counters that `source` returns whenever they are read."""
        self._sources.append(source)

    def refresh(self) -> None:
        """Somebody reads the counters: find out anew what takes time, for the next time."""
        self._broker.services.group_lag.refresh()
        self._broker.services.disk_space.refresh()

    def read(self, prefix: str = "") -> list[Sample]:
        """All counters whose names begin with `prefix`, by name and labels."""
        found = [sample for source in self._sources for sample in source() if sample.name.startswith(prefix)]
        return sorted(found, key=lambda sample: (sample.name, sample.labels))

    def _records(self) -> Iterator[Sample]:
        table, reads = self._broker.partitions, self._broker.services.reads
        yield Sample("drmq_messages_produced_total", table.produced_records)
        yield Sample("drmq_messages_consumed_total", reads.read_records)
        yield Sample("drmq_produced_bytes_total", table.produced_bytes)
        recompression = self._broker.services.recompression
        yield Sample("drmq_recompressed_batches_total", recompression.recompressed_count)
        yield Sample("drmq_recompression_queued_bytes", recompression.queued_bytes)
        yield Sample("drmq_consumed_bytes_total", reads.read_bytes)
        yield Sample("drmq_parked_partitions", reads.parked_partitions)
        yield Sample("drmq_blocking_calls", self._broker.blocking_calls)

    def _partitions(self) -> Iterator[Sample]:
        table = self._broker.partitions
        yield from self._survey().samples()
        yield sample_of("drmq_commit_duration_us", table.commit_times.durations_us)
        yield Sample("drmq_uncommitted_bytes", table.uncommitted_bytes)
        yield Sample("drmq_elections_total", table.events.elections)
        yield Sample("drmq_leaderships_won_total", table.events.won)
        yield Sample("drmq_leaderships_lost_total", table.events.lost)
        yield Sample("drmq_truncations_total", table.events.truncations)

    def _disk(self) -> Iterator[Sample]:
        writer = self._broker.writer
        yield Sample("drmq_writer_cycles_total", writer.cycle_count)
        yield Sample("drmq_writer_queued_bytes", writer.queued_bytes)
        yield Sample("drmq_write_failures_total", writer.failure_count)
        yield sample_of("drmq_sync_duration_us", writer.sync_durations_us)
        if writer.journal is not None:
            yield Sample("drmq_journal_records_total", writer.journal.record_count)
            yield Sample("drmq_journal_bytes_total", writer.journal.written_bytes)

    def _peers(self) -> Iterator[Sample]:
        network = self._broker.network
        peers = network.peers.values()
        up = sum(peer.is_up for peer in peers)
        yield Sample("drmq_peers", up, (("state", "up"),))
        yield Sample("drmq_peers", len(peers) - up, (("state", "down"),))
        yield Sample("drmq_peer_down_total", network.down_count)
        yield Sample("drmq_peer_refused_total", network.refused_count)
        yield Sample("drmq_peer_dropped_messages_total", sum(peer.dropped_messages for peer in peers))
        yield Sample("drmq_peer_buffered_bytes", sum(peer.buffered_bytes for peer in peers))
        yield Sample("drmq_peer_protocol_errors_total", network.invalid_count + self._broker.host.protocol_errors)

    def _coordinators(self) -> Iterator[Sample]:
        counts: dict[str, list[int]] = {topic.name: [0, 0] for topic in self._broker.internal_topics}
        for coordinator in self._broker.internal_topics.running():
            found = counts[coordinator.log.partition.topic]
            found[0] += coordinator.log.batch_count
            found[1] += coordinator.log.record_count
        for topic, (batches, records) in counts.items():
            labels = (("topic", topic),)
            yield Sample("drmq_coordinator_batches_total", batches, labels)
            yield Sample("drmq_coordinator_records_total", records, labels)

    def _leases(self) -> Iterator[Sample]:
        """Of the shards that this node leads; what was counted before a shard went elsewhere stays."""
        shards = list(self._broker.leases.shards.values())
        counts = total(shard.machine.counts for shard in shards)
        yield Sample("drmq_leased_messages_total", counts.leased)
        for outcome, count in counts.settled.items():
            yield Sample("drmq_lease_outcomes_total", count, (("outcome", outcome.name.lower()),))
        yield Sample("drmq_lease_outcomes_total", counts.expired, (("outcome", "expire"),))
        led = [shard.machine for shard in shards if shard.leads]
        queues = [queue for shard in led for queue in shard.queues.values() if queue.key.partition != WHOLE_TOPIC]
        yield Sample("drmq_lease_messages", sum(each.held.count for each in queues), (("state", "held"),))
        yield Sample("drmq_lease_messages", sum(each.returned.count for each in queues), (("state", "returned"),))
        yield Sample("drmq_lease_messages", sum(each.parked.count for each in queues), (("state", "parked"),))
        yield Sample("drmq_lease_messages", sum(each.dying.count for each in queues), (("state", "dying"),))
        yield Sample("drmq_lease_queues", len(queues))
        yield Sample("drmq_lease_paused_queues", sum(len(shard.paused) for shard in led))
        yield Sample("drmq_dead_letters_total", self._broker.services.dead_letters.written_count)
        yield Sample("drmq_dead_letters_redriven_total", self._broker.services.redrives.redriven_count)
        yield Sample("drmq_dead_letters_purged_total", self._broker.services.redrives.purged_count)

    def _process(self) -> Iterator[Sample]:
        yield sample_of("drmq_loop_delay_us", self._broker.host.loop_delays_us)
        yield Sample("drmq_process_cpu_us_total", time.process_time_ns() // 1_000)
        yield Sample("drmq_process_uptime_us", (time.monotonic_ns() - self._began_ns) // 1_000)
        yield Sample("drmq_process_resident_bytes", resident_bytes())
        yield Sample("drmq_process_descriptors", self._descriptor_count())
