"""Reads the counters of a node.

The parts of the broker count for themselves, in plain integers. Here these are given their names and labels, when they
are requested and not before. A door adds its own counters with `add`. `drmq.model.counters` describes each counter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from drmq.broker.services.partition_survey import survey
from drmq.model.counters import Sample, sample_of

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

Source = Callable[[], Iterable[Sample]]


class Counters:
    """All counters of one node. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._began_ns = time.monotonic_ns()
        self._sources: list[Source] = [self._records, self._partitions, self._disk, self._peers, self._coordinators]
        self._sources.append(self._process)

    def add(self, source: Source) -> None:
        """Include the counters that `source` returns whenever they are read."""
        self._sources.append(source)

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

    def _partitions(self) -> Iterator[Sample]:
        table = self._broker.partitions
        yield from survey(self._broker).samples()
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
        yield Sample("drmq_peer_protocol_errors_total", self._broker.host.protocol_errors)

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

    def _process(self) -> Iterator[Sample]:
        yield sample_of("drmq_loop_delay_us", self._broker.host.loop_delays_us)
        yield Sample("drmq_process_cpu_us_total", time.process_time_ns() // 1_000)
        yield Sample("drmq_process_uptime_us", (time.monotonic_ns() - self._began_ns) // 1_000)
        yield Sample("drmq_process_resident_bytes", _resident_bytes())
        yield Sample("drmq_process_descriptors", _descriptor_count())


def _resident_bytes() -> int:
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _descriptor_count() -> int:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd")) - 1
    return 0
