"""Redrive: dead letters come back to their origins, once, with their history; what cannot move waits and says why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from drmq.broker.services.caller import Caller, node_caller
from drmq.broker.services.gate import Gate, Operation, Permission
from drmq.broker.services.redrive import run as redrive_run
from drmq.model import ApiError, ErrorCode, Offset
from drmq.model.names import REDRIVE_GROUP, is_group_id
from drmq.records import Codec, Record, encode_batch, iter_batches, iter_records
from drmq.wire.messages.lease_fetch import LeaseFetchRequest
from drmq.wire.messages.redrive import RedriveAction, RedriveRequest
from support.broker_harness import NODE, Harness
from support.lease_requests import GROUP, REJECT, TOPIC, Leases

DLQ = f"dlq.{GROUP}"
CALLER = node_caller(NODE)
RUNNING, STOPPING, FINISHED, STOPPED = 1, 2, 3, 4


@pytest.fixture
def leases(harness: Harness) -> Leases:
    return Leases(harness, partitions=2)


class ReadOnlyGate(Gate):
    """Lets clients write to no topic."""

    def authorise(self, caller: Caller, api: str, permissions: Sequence[Permission]) -> Iterable[Permission]:
        return [each for each in permissions if each.operation is Operation.WRITE and not caller.is_node]


def ask(harness: Harness, action: RedriveAction, **fields: Any) -> Any:
    wanted = fields.pop("filter", None)
    fields.setdefault("topic", DLQ)
    return harness.ask(RedriveRequest(action, filter=json.dumps(wanted) if wanted else None, **fields))


def do(harness: Harness, action: RedriveAction, **fields: Any) -> Any:
    answer = ask(harness, action, **fields)
    assert answer.error_code == 0, answer.error_message
    return answer


def status(harness: Harness) -> Any:
    return do(harness, RedriveAction.STATUS)


def waiting(answer: Any) -> int:
    return sum(partition.waiting_count for partition in answer.partitions)


def until_ended(harness: Harness) -> Any:
    """The status once no redrive runs."""
    for _ in range(200):
        answer = status(harness)
        if answer.state not in (RUNNING, STOPPING):
            return answer
        harness.advance(500)
    raise AssertionError(f"the redrive does not end: {answer}")


def records(harness: Harness, topic: str = TOPIC, partition: int = 0) -> list[Record]:
    """Everything in a partition."""
    found = harness.run(harness.broker.services.router.read(CALLER, topic, partition, Offset(0), 1 << 24))
    data = bytes(found.data)
    return [
        record
        for position, header in iter_batches(data)
        for record in iter_records(data[position : position + header.size], decompressed_size_max=1 << 24)
    ]


def bury(harness: Harness, leases: Leases, *values: bytes, partition: int = 0) -> None:
    """Produce records and reject them, and wait for their letters."""
    before = waiting(status(harness)) if DLQ in harness.broker.metadata.committed_catalog.topics else 0
    harness.produce(TOPIC, partition, list(values))
    leases.take(len(values), partitions=(partition,))
    end = harness.partition(TOPIC, partition).high_watermark
    assert leases.settle(REJECT, end - len(values), end - 1, partitions=(partition,)) == []
    for _ in range(200):
        harness.settle()
        topics = harness.broker.metadata.committed_catalog.topics
        if DLQ in topics and waiting(status(harness)) == before + len(values):
            return
        harness.advance(100)
    raise AssertionError("the letters are not written")


def delete(harness: Harness, topic: str) -> None:
    harness.run(harness.broker.topics.delete(harness.broker.metadata.committed_catalog.topic(topic)))
    harness.advance(100)


def moved(harness: Harness, partition: int = 0) -> list[bytes | None]:
    """The values in a partition of the origin that were moved there."""
    return [
        record.value
        for record in records(harness, partition=partition)
        if any(name == "__dlq.redrive.count" for name, _ in record.headers)
    ]


# ---- moving back --------------------------------------------------------------------------------


def test_letters_return_to_their_partitions_once_and_tell_their_history(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a", b"b", partition=0)
    bury(harness, leases, b"c", partition=1)
    begun = do(harness, RedriveAction.START)
    assert begun.number == 1
    ended = until_ended(harness)
    assert (ended.state, ended.redriven_count, ended.failed_count, ended.reason) == (FINISHED, 3, 0, "")
    assert waiting(ended) == 0
    assert moved(harness, 0) == [b"a", b"b"]
    assert moved(harness, 1) == [b"c"]
    headers = dict(records(harness)[2].headers)
    assert headers["__dlq.redrive.count"] == b"1"
    past = json.loads(headers["__dlq.redrive.history"] or b"")
    assert (past["topic"], past["partition"], past["offset"], past["group"]) == (TOPIC, "0", "0", GROUP)
    assert "__dlq.errors.topic" not in headers, "it is no dead letter any more"
    assert len(records(harness, DLQ)) == 3, "the letters stay in their topic until retention removes them"
    do(harness, RedriveAction.START)
    assert until_ended(harness).redriven_count == 0, "what is done is not moved again"
    assert moved(harness, 0) == [b"a", b"b"]


def test_a_record_that_fails_again_is_a_letter_again(harness: Harness, leases: Leases) -> None:
    """The redrive that moved it does not move it again, or it would never end."""
    bury(harness, leases, b"poison")
    for count in (1, 2):
        do(harness, RedriveAction.START)
        assert until_ended(harness).redriven_count == 1
        offset = harness.partition(TOPIC).high_watermark - 1
        leases.take(1)
        leases.settle(REJECT, offset)
        for _ in range(100):
            if waiting(status(harness)):
                break
            harness.advance(100)
        [letter] = do(harness, RedriveAction.LIST, count_max=10).letters
        assert (letter.value, letter.redrive_count, letter.origin_offset) == (b"poison", count, offset)


@pytest.mark.parametrize(
    ("wanted", "values"),
    [
        ({"value_contains": "b"}, [b"b1", b"b2"]),
        ({"partition": 1}, []),
        ({"reason": "rejected", "attempts_min": 1, "topic": TOPIC}, [b"a1", b"b1", b"a2", b"b2"]),
        ({"attempts_min": 2}, []),
    ],
)
def test_a_filter_picks_letters_from_the_middle(
    harness: Harness, leases: Leases, wanted: dict[str, Any], values: list[bytes]
) -> None:
    bury(harness, leases, b"a1", b"b1", b"a2", b"b2")
    do(harness, RedriveAction.START, filter=wanted)
    ended = until_ended(harness)
    assert moved(harness) == values
    assert (ended.redriven_count, ended.skipped_count, waiting(ended)) == (
        len(values),
        4 - len(values),
        4 - len(values),
    )
    do(harness, RedriveAction.START)
    assert until_ended(harness).redriven_count == 4 - len(values)
    assert set(moved(harness)) == {b"a1", b"a2", b"b1", b"b2"}


def test_a_count_limits_what_is_moved(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, *(b"%d" % n for n in range(10)))
    do(harness, RedriveAction.START, count_max=4)
    assert until_ended(harness).redriven_count == 4
    assert moved(harness) == [b"0", b"1", b"2", b"3"]


def test_many_letters_take_many_batches(harness: Harness, leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_run, "BATCH_LETTERS_MAX", 7)
    expected = [b"%d" % n for n in range(50)]
    bury(harness, leases, *expected)
    do(harness, RedriveAction.START)
    assert until_ended(harness).redriven_count == 50
    assert moved(harness) == expected


# ---- what cannot be moved -----------------------------------------------------------------------


def test_letters_without_an_origin_wait_and_say_why(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a", partition=0)
    bury(harness, leases, b"b", partition=1)
    delete(harness, TOPIC)
    do(harness, RedriveAction.START)
    ended = until_ended(harness)
    assert (ended.state, ended.redriven_count, ended.failed_count, waiting(ended)) == (FINISHED, 0, 2, 2)
    assert ended.reason == f"2 × topic {TOPIC} does not exist"
    harness.create_topic(TOPIC, 1)
    do(harness, RedriveAction.START)
    ended = until_ended(harness)
    assert (ended.redriven_count, ended.failed_count) == (0, 2)
    assert "was deleted and created again since" in ended.reason
    assert records(harness) == []


def test_a_letter_that_its_origin_refuses_does_not_hold_up_the_others(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a", bytes(3_000), b"b")
    harness.run(harness.broker.topics.set_configs(TOPIC, {"max.message.bytes": "2000"}))
    do(harness, RedriveAction.START)
    ended = until_ended(harness)
    assert (ended.redriven_count, ended.failed_count, waiting(ended)) == (2, 1, 1)
    assert "max.message.bytes" in ended.reason
    assert moved(harness) == [b"a", b"b"]


def test_a_client_needs_the_right_to_write_to_the_origin(harness: Harness, leases: Leases) -> None:
    """Otherwise letters with invented origins would be a way to write anywhere."""
    bury(harness, leases, b"a")
    harness.broker.services.gate = ReadOnlyGate()
    do(harness, RedriveAction.START)
    ended = until_ended(harness)
    assert (ended.redriven_count, ended.failed_count) == (0, 1)
    assert moved(harness) == []


def test_what_is_no_letter_waits(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a")
    harness.produce(DLQ, 0, [b"a note of somebody"])
    do(harness, RedriveAction.START)
    ended = until_ended(harness)
    assert (ended.redriven_count, ended.failed_count, ended.reason) == (1, 1, "it is no dead letter")


def test_letters_that_retention_removed_are_passed_over(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a")
    bury(harness, leases, b"b")
    done = harness.loop.create_future()
    harness.call(lambda: harness.partition(DLQ).trim(Offset(1), done.set_result))
    harness.run(done)
    assert waiting(status(harness)) == 1
    do(harness, RedriveAction.START)
    assert until_ended(harness).redriven_count == 1
    assert moved(harness) == [b"b"]


def test_compressed_letters_are_moved_compressed(harness: Harness, leases: Leases) -> None:
    value = bytes(200_000)
    batch = encode_batch([Record(Offset(0), harness.clock.wall_ms(), b"k", value)], codec=Codec.ZSTD)
    harness.append(TOPIC, memoryview(batch))
    leases.take(1)
    leases.settle(REJECT, 0)
    for _ in range(100):
        harness.advance(100)
        if DLQ in harness.broker.metadata.committed_catalog.topics and waiting(status(harness)):
            break
    do(harness, RedriveAction.START)
    until_ended(harness)
    assert moved(harness) == [value]
    assert harness.partition(TOPIC).log.size_bytes < 10_000


# ---- one at a time, and stopping ----------------------------------------------------------------


def hold_up(harness: Harness) -> None:
    """Make every append to the origin fail for now, so that a redrive stays under way."""
    router = harness.broker.services.router
    real = router.append

    async def append(caller: Any, topic: str, *rest: Any, **options: Any) -> Any:
        if topic == TOPIC and getattr(router, "is_held", True):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "orders-0 has no leader at the moment")
        return await real(caller, topic, *rest, **options)

    router.append = append  # type: ignore[method-assign]


def until_under_way(harness: Harness) -> Any:
    """The status once a redrive has read letters and cannot append them. They are read on threads."""
    for _ in range(200):
        answer = status(harness)
        if answer.reason.startswith("waiting"):
            return answer
        harness.advance(100)
    raise AssertionError(f"the redrive does not come to its first batch: {answer}")


def let_go(harness: Harness) -> None:
    harness.broker.services.router.is_held = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("action", [RedriveAction.PURGE, RedriveAction.START, RedriveAction.LIST])
def test_the_records_of_an_ordinary_topic_are_no_dead_letters(
    harness: Harness, leases: Leases, action: RedriveAction
) -> None:
    """A client that purges a topic by mistake goes on to delete its records: it has to be refused before that."""
    harness.create_topic("precious")
    harness.produce("precious", values=[b"x"] * 10)
    refused = ask(harness, action, topic="precious", count_max=10)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "takes no dead letters" in refused.error_message
    assert waiting(do(harness, RedriveAction.STATUS, topic="precious")) == 10


def test_one_redrive_at_a_time(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a")
    hold_up(harness)
    do(harness, RedriveAction.START)
    for action in (RedriveAction.START, RedriveAction.PURGE):
        refused = ask(harness, action)
        assert refused.error_code == ErrorCode.DUPLICATE_RESOURCE
        assert refused.error_message.endswith(
            "a redrive of this topic is running; wait until it ends, or stop it first"
        )
    now = until_under_way(harness)
    assert now.state == RUNNING
    assert now.reason == "waiting: orders-0 has no leader at the moment"
    let_go(harness)
    assert until_ended(harness).redriven_count == 1
    assert moved(harness) == [b"a"]


def test_a_redrive_that_is_stopped_finishes_the_batch_under_way(
    harness: Harness, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive_run, "BATCH_LETTERS_MAX", 2)
    bury(harness, leases, b"a", b"b", b"c", b"d", b"e")
    hold_up(harness)
    do(harness, RedriveAction.START)
    until_under_way(harness)
    assert do(harness, RedriveAction.STOP).state == STOPPING
    let_go(harness)
    ended = until_ended(harness)
    assert (ended.state, ended.redriven_count, waiting(ended)) == (STOPPED, 2, 3)
    assert moved(harness) == [b"a", b"b"]
    assert ask(harness, RedriveAction.STOP).error_code == ErrorCode.RESOURCE_NOT_FOUND
    do(harness, RedriveAction.START)
    assert until_ended(harness).redriven_count == 3
    assert moved(harness) == [b"a", b"b", b"c", b"d", b"e"]


def test_the_state_outlives_the_leader(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a", b"b")
    do(harness, RedriveAction.START, count_max=1)
    until_ended(harness)
    for shard in harness.broker.leases.shards.values():
        with harness.failing(shard.log.partition):
            pass
    assert waiting(status(harness)) == 1
    do(harness, RedriveAction.START)
    assert until_ended(harness).redriven_count == 1
    assert moved(harness) == [b"a", b"b"]


def test_a_deleted_dead_letter_topic_leaves_nothing(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a")
    do(harness, RedriveAction.START)
    until_ended(harness)
    delete(harness, DLQ)
    harness.advance(100)
    assert all(not shard.machine.redrives.topics for shard in harness.broker.leases.shards.values())
    leases.take(1)  # what was moved back
    bury(harness, leases, b"b")
    assert status(harness).number == 0


# ---- looking and purging ------------------------------------------------------------------------


def test_letters_are_listed_page_by_page(harness: Harness, leases: Leases) -> None:
    for value in (b"a", b"b", b"c"):
        bury(harness, leases, value)
    bury(harness, leases, b"d", partition=1)
    found, position = [], (0, 0)
    for _ in range(20):
        answer = do(harness, RedriveAction.LIST, count_max=2, from_partition=position[0], from_offset=position[1])
        assert len(answer.letters) <= 2
        found += [letter.value for letter in answer.letters]
        position = (answer.next_partition, answer.next_offset)
        if position[0] < 0:
            break
    assert found == [b"a", b"b", b"c", b"d"]
    assert do(harness, RedriveAction.LIST).matched_count == 4, "only counted"
    [letter] = do(harness, RedriveAction.LIST, count_max=9, filter={"value_contains": "d"}).letters
    assert (letter.origin_topic, letter.origin_partition, letter.origin_offset) == (TOPIC, 1, 0)
    assert (letter.group_id, letter.reason, letter.attempts) == (GROUP, "it was rejected", 1)
    assert 0 < letter.first_failed_ms <= letter.last_failed_ms
    ends = [letter.value for letter in do(harness, RedriveAction.STATUS, count_max=1).letters]
    assert ends == [b"a", b"d"]


def test_purged_letters_are_neither_shown_nor_moved(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a1", b"b1", b"a2", b"b2")
    assert do(harness, RedriveAction.PURGE, filter={"value_contains": "a"}).matched_count == 2
    assert [letter.value for letter in do(harness, RedriveAction.LIST, count_max=9).letters] == [b"b1", b"b2"]
    do(harness, RedriveAction.START, count_max=1)
    until_ended(harness)
    assert moved(harness) == [b"b1"]
    purged = do(harness, RedriveAction.PURGE)
    assert (purged.matched_count, purged.purged_count, waiting(purged)) == (1, 3, 0)
    do(harness, RedriveAction.START)
    assert until_ended(harness).redriven_count == 0
    assert moved(harness) == [b"b1"]


# ---- refusals -----------------------------------------------------------------------------------


def test_requests_that_make_no_sense_are_refused_and_say_why(harness: Harness, leases: Leases) -> None:
    bury(harness, leases, b"a")
    assert ask(harness, RedriveAction.START, topic="missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (
        ask(harness, RedriveAction.START, topic="__share_group_state").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    refused = ask(harness, RedriveAction.START, filter={"colour": "red"})
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "there is no field 'colour'" in refused.error_message
    assert ask(harness, RedriveAction.START, count_max=-1).error_code == ErrorCode.INVALID_REQUEST
    assert harness.ask(RedriveRequest(9, DLQ)).error_code == ErrorCode.INVALID_REQUEST


def test_the_reserved_group_is_nobodys(harness: Harness, leases: Leases) -> None:
    """Its queues would be taken for what is known about dead letters."""
    answer = harness.ask(LeaseFetchRequest(REDRIVE_GROUP, "m", 0, 1 << 20, 1, []))
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    assert not is_group_id(REDRIVE_GROUP)
