"""The broker as a whole: what it refuses to start on, and what a stop leaves behind."""

from __future__ import annotations

import pytest

from drmq.broker import StateUnreadable
from drmq.broker.clock import JumpDetector
from drmq.testing.files import FakeFiles
from support.broker_harness import DATA_DIRECTORY, Harness


def test_topics_without_their_metadata_are_refused() -> None:
    """A node that lost its catalog must not take itself for a new one: its topics would be gone."""
    files = FakeFiles()
    with Harness(files) as harness:
        harness.create_topic("t")
    for name in files.list(f"{DATA_DIRECTORY}/internal/__cluster_metadata/0"):
        files.remove(f"{DATA_DIRECTORY}/internal/__cluster_metadata/0/{name}")
    files.remove_directory(f"{DATA_DIRECTORY}/internal/__cluster_metadata/0")
    with pytest.raises(StateUnreadable, match="metadata log that describes them is gone"):
        Harness(files)


def test_a_stopped_broker_is_what_it_was() -> None:
    files = FakeFiles()
    with Harness(files) as harness:
        harness.create_topic("t", 2, retention_ms="1000")
        harness.produce("t", 1, [b"x", b"y"])
    with Harness(files) as again:
        topic = again.broker.catalog.topic("t")
        assert (topic.partition_count, dict(topic.configs)) == (2, {"retention.ms": "1000"})
        assert again.partition("t", 1).high_watermark == 2
        assert again.partition("t", 0).high_watermark == 0


class TwoClocks:
    wall = 1_000_000
    monotonic = 0

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic


def test_a_clock_that_jumps_is_noticed_once() -> None:
    clock = TwoClocks()
    jumps = JumpDetector(clock)
    for _ in range(3):
        clock.wall += 3_600_000
        clock.monotonic += 3_600_000
        assert not jumps.has_jumped()
    for step in (86_400_000, -86_400_000):
        clock.wall += step
        assert jumps.has_jumped()
        assert not jumps.has_jumped()


def test_a_jump_of_the_clock_expires_nothing() -> None:
    with Harness() as harness:
        harness.create_topic("t", segment_bytes="1024", retention_ms="3600000")
        for _ in range(10):
            harness.produce("t", values=[b"x" * 300])
        real = harness.clock.wall_ms
        harness.clock.wall_ms = lambda: real() + 86_400_000  # type: ignore[method-assign]
        harness.run(harness.broker.maintain())
        assert harness.partition("t").start_offset == 0
        # It stays a day later, so it is the time now, and the records are old.
        harness.run(harness.broker.maintain())
        assert harness.partition("t").start_offset > 0
