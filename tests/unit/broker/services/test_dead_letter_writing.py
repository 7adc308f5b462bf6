"""Dead letters are written before their records leave, and what cannot be written holds up nothing else."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from drmq.broker.services.caller import node_caller
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch, iter_batches, iter_records
from support.broker_harness import NODE, Harness
from support.lease_requests import GROUP, REJECT, TOPIC, Leases

DLQ = f"dlq.{GROUP}"


@pytest.fixture
def leases(harness: Harness) -> Leases:
    return Leases(harness, partitions=2)


def letters(harness: Harness, topic: str = DLQ) -> list[Record]:
    """Everything in the first partition of a topic; nothing if it does not exist."""
    if topic not in harness.broker.metadata.committed_catalog.topics:
        return []
    found = harness.run(harness.broker.services.router.read(node_caller(NODE), topic, 0, Offset(0), 1 << 24))
    data = bytes(found.data)
    return [
        record
        for position, header in iter_batches(data)
        for record in iter_records(data[position : position + header.size], decompressed_size_max=1 << 26)
    ]


def reject(leases: Leases, first: int, last: int, partition: int = 0) -> None:
    leases.take(last - first + 1, partitions=(partition,))
    assert leases.settle(REJECT, first, last, partitions=(partition,)) == []


def wait_for(harness: Harness, count: int, topic: str = DLQ, step_ms: int = 500) -> list[Record]:
    """Without a step, no time passes on the node's clock, however long its threads take on a busy machine."""
    for _ in range(100 if step_ms else 1000):
        found = letters(harness, topic)
        if len(found) >= count:
            return found
        harness.advance(step_ms)
        if not step_ms:
            harness.run(asyncio.sleep(0.01))
    raise AssertionError(f"{len(found)} of {count} letters")


def dying(leases: Leases, partition: int = 0) -> int:
    return leases.queue(partition).dying.count


def test_a_record_leaves_when_its_letter_is_committed(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, 0, [b"a", b"b"])
    reject(leases, 0, 1)
    assert [letter.value for letter in wait_for(harness, 2)] == [b"a", b"b"]
    harness.advance(100)
    assert dying(leases) == 0


def test_a_topic_that_takes_no_letters_holds_up_only_its_own(
    harness: Harness, leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    """The records stay where they are, and one line says which, why, and what to do."""
    harness.create_topic("dlq.blocked")
    settings = harness.broker.group_settings
    blocked = {"is": True}
    real = settings.dead_letter_topic_of

    def topic_of(group: str) -> str | None:
        # Both queues are of one group here, so the topic is chosen by the moment: the first queue finds a bad one.
        return "dlq.blocked" if blocked["is"] else real(group)

    settings.dead_letter_topic_of = topic_of  # type: ignore[method-assign]
    harness.produce(TOPIC, 0, [b"a"])
    harness.produce(TOPIC, 1, [b"b"])
    with caplog.at_level(logging.ERROR, "drmq.broker"):
        reject(leases, 0, 0)
        harness.advance(100)
    [line] = {record.getMessage() for record in caplog.records}
    assert f"dead letters of group {GROUP} from {TOPIC}-0 are not written" in line
    assert "does not allow dead letters; set errors.deadletterqueue.group.enable=true on it" in line
    assert "drmq topic describe" in line
    assert dying(leases) == 1
    blocked["is"] = False
    # The first queue waits after its failure. The second does not wait for it.
    reject(leases, 0, 0, partition=1)
    assert [letter.value for letter in wait_for(harness, 1, step_ms=0)][:1] == [b"b"]
    assert sorted(letter.value or b"" for letter in wait_for(harness, 2)) == [b"a", b"b"]
    harness.advance(100)
    assert (dying(leases), dying(leases, 1)) == (0, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_largest_record_that_a_topic_takes_has_a_letter(harness: Harness, leases: Leases, codec: Codec) -> None:
    """With its headers it is larger than `max.message.bytes`, which is a rule for clients."""
    size = 1_048_588 - 100 if codec is Codec.NONE else 8_000_000
    batch = encode_batch([Record(Offset(0), harness.clock.wall_ms(), b"k", bytes(size))], codec=codec)
    harness.append(TOPIC, memoryview(batch))
    reject(leases, 0, 0)
    [letter] = wait_for(harness, 1)
    assert letter.value == bytes(size)


def test_records_that_are_gone_have_no_letter_and_block_nothing(harness: Harness, leases: Leases) -> None:
    """Retention was faster than the dead-letter topic, which could not be written for a while."""
    for value in (b"a", b"b", b"c"):
        harness.produce(TOPIC, 0, [value])
    harness.broker.leases.on_changed = lambda shard: None
    reject(leases, 0, 2)
    done = harness.loop.create_future()
    harness.call(lambda: harness.partition(TOPIC).trim(Offset(2), done.set_result))
    harness.run(done)
    for shard in harness.broker.leases.shards.values():
        harness.call(partial(harness.broker.services.dead_letters.look_at, shard))
    assert [letter.value for letter in wait_for(harness, 1)] == [b"c"]
    harness.advance(100)
    assert dying(leases) == 0


def test_a_deleted_dead_letter_topic_is_made_again(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, 0, [b"a", b"b"])
    reject(leases, 0, 0)
    wait_for(harness, 1)
    harness.run(harness.broker.topics.delete(harness.broker.metadata.committed_catalog.topic(DLQ)))
    harness.advance(100)
    reject(leases, 1, 1)
    assert [letter.value for letter in wait_for(harness, 1)] == [b"b"]


def test_topics_for_letters_keep_them(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, 0, [b"a"])
    reject(leases, 0, 0)
    wait_for(harness, 1)
    configs = harness.broker.metadata.committed_catalog.topic(DLQ).configs
    assert configs["retention.ms"] == "-1"
    assert configs["errors.deadletterqueue.group.enable"] == "true"


def test_a_group_that_does_not_copy_has_letters_that_say_so(harness: Harness, leases: Leases) -> None:
    harness.broker.group_settings.copies_dead_letters = lambda group: False  # type: ignore[method-assign]
    harness.produce(TOPIC, 0, [b"a"])
    reject(leases, 0, 0)
    [letter] = wait_for(harness, 1)
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["__dlq.errors.copied"] == b"false"
    assert dict(letter.headers)["__dlq.errors.offset"] == b"0"
