"""Records of a later release: a node that finds one does not start; one that is sent one stops that replica."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from crc32c import crc32c

from drmq.broker.coordination.machine_log import MachineLog
from drmq.model import Offset, UnknownFormat
from drmq.records import Record, encode_batch
from drmq.testing.files import FakeFiles
from support.broker_harness import Harness

LATER_FACT = b'{"kind":"moon-phase-set","version":2,"phase":3}'
LATER_LEVEL = b'{"kind":"feature-level-set","version":2,"feature":"metadata.version","level":9}'


def append(harness: Harness, log: MachineLog, key: bytes, value: bytes) -> None:
    """As the leader of a later release would: this node has not made it, and replays it when it is committed."""
    batch = bytearray(encode_batch([Record(Offset(0), 0, key, value)]))
    harness.call(lambda: log.partition.append_own(batch))
    harness.settle()


def listen_for_bugs(harness: Harness) -> list[dict[str, Any]]:
    bugs: list[dict[str, Any]] = []
    harness.loop.set_exception_handler(lambda loop, context: bugs.append(context))
    return bugs


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (LATER_FACT, "'moon-phase-set' record of version 2, which this version of DRMQ does not know"),
        (LATER_LEVEL, "has finalized level 9 of the feature 'metadata.version', and this release knows levels 1 to 4"),
    ],
)
@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped in order"])
def test_a_later_fact_stops_the_metadata_and_the_next_start(
    value: bytes, text: str, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, in clear words, and without a trace of the insides."""
    files = FakeFiles()
    harness = Harness(files)
    bugs = listen_for_bugs(harness)
    log = harness.broker.metadata.log
    with caplog.at_level(logging.CRITICAL):
        append(harness, log, b"later", value)
    [said] = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert text in said
    assert bugs == []
    assert log.partition.replica.node is None
    assert text in str(log.partition.failure)
    assert not harness.broker.is_controller
    harness.settle()
    assert log.partition.replica.node is None, "it does not begin again"
    if is_clean:
        harness.close()
    else:
        harness.crash()
        files = files.after_kill()
    with pytest.raises(UnknownFormat) as refused:
        Harness(files)
    assert text in str(refused.value)
    assert "start the" in str(refused.value)


def test_a_later_group_record_stops_its_shard_and_nothing_else(
    files: FakeFiles, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    bugs = listen_for_bugs(harness)
    partition = next(iter(harness.broker.partitions.slots(harness.broker.catalog.topic("__consumer_offsets").topic_id)))
    shard = harness.broker.partitions.by_name("__consumer_offsets", partition)
    batch = bytearray(encode_batch([Record(Offset(0), 0, b'{"kind":"lease"}', b"{}")]))
    with caplog.at_level(logging.CRITICAL):
        harness.call(lambda: shard.append_own(batch))
        harness.settle()
    assert "a group record of kind 'lease', which this version does not know" in caplog.text
    assert shard.replica.node is None
    assert bugs == []
    assert harness.broker.is_controller
    harness.create_topic("t")
    assert harness.broker.partitions.by_name("t", 0).is_serving


@pytest.mark.parametrize("name", ["ledger", "flushed"])
def test_a_partition_of_a_later_release_keeps_the_node_from_starting(name: str) -> None:
    """It is not given up as damaged: nothing of it is changed."""
    files = FakeFiles()
    with Harness(files) as harness:
        topic = harness.create_topic("t")
        harness.produce("t")
    path = f"/data/topics/t.{topic.topic_id.hex()}/0/{name}"
    content = bytearray(files.content(path))
    covered = 8 if name == "ledger" else 36
    content[4] = 2
    content[covered : covered + 4] = crc32c(bytes(content[:covered])).to_bytes(4, "little")
    files.replace_content(path, bytes(content))
    with pytest.raises(
        UnknownFormat, match=f"{name}: it has version 2 of the format, and this program knows version 1"
    ):
        Harness(files)
    assert files.content(path) == bytes(content)


def test_a_level_is_written_down_for_the_next_start(files: FakeFiles, harness: Harness) -> None:
    """Also where the process ends without a chance to save anything."""
    assert harness.broker.metadata.committed_catalog.level("metadata.version") == 4
    harness.crash()
    with Harness(files.after_kill()) as again:
        assert again.broker.metadata.committed_catalog.level("metadata.version") == 4
