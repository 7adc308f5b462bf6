"""Dead letters and redrives, one rule at a time. Random crashes are in `tests/unit/broker/services/redrive`."""

from __future__ import annotations

from random import Random

import pytest

from drmq.leases import (
    BatchAllowed,
    DescribeLetters,
    EndBatch,
    EndRedrive,
    IntendBatch,
    LeaseRecord,
    LeaseResponse,
    LettersView,
    NoteProgress,
    Origin,
    Purged,
    PurgeLetters,
    RedriveBegun,
    RedriveDone,
    RedriveRefusal,
    RedriveRefused,
    RedriveState,
    RedriveView,
    Runs,
    SavedBatch,
    StartRedrive,
    StopRedrive,
    record_from_bytes,
    record_to_bytes,
    redrive_key,
)
from drmq.leases import redrive as redrive_module
from drmq.leases.records import LogTrimmed, QueueRemoved, QueueStarted
from drmq.leases.redrive_records import (
    BatchEnded,
    BatchIntended,
    LettersPurged,
    LettersSnapshot,
    RedriveEnded,
    RedriveStarted,
    RedriveStopping,
    SavedRedrive,
)
from drmq.model import TopicId
from support.lease_harness import LeaseHarness

TOPIC = TopicId(b"dead letters 123")
A, B = Origin(TopicId(b"origin topic a 1"), 0), Origin(TopicId(b"origin topic a 1"), 1)
PRODUCER = 77


@pytest.fixture
def harness() -> LeaseHarness:
    return LeaseHarness()


def start(harness: LeaseHarness, count_max: int = 0, producer_id: int = PRODUCER, end: int = 100) -> LeaseResponse:
    return harness.ask(StartRedrive(TOPIC, producer_id, count_max, "", "", ((0, end), (0, end))))


def intend(harness: LeaseHarness, *runs: tuple[int, int], origin: Origin = A, partition: int = 0) -> LeaseResponse:
    return harness.ask(IntendBatch(TOPIC, 1, partition, origin, 5, runs))


def end(harness: LeaseHarness, *, origin: Origin = A, is_done: bool = True, new_epoch: bool = False) -> None:
    assert harness.ask(EndBatch(TOPIC, 1, origin, is_done, new_epoch)) == RedriveDone()


def refused(answer: LeaseResponse) -> RedriveRefusal:
    assert isinstance(answer, RedriveRefused), answer
    return answer.refusal


def view(harness: LeaseHarness) -> LettersView:
    found = harness.ask(DescribeLetters(TOPIC))
    assert isinstance(found, LettersView), found
    return found


def redrive(harness: LeaseHarness) -> RedriveView:
    found = view(harness).redrive
    assert found is not None
    return found


def done(harness: LeaseHarness) -> dict[int, Runs]:
    return dict(view(harness).done)


def test_a_batch_has_the_numbers_that_follow_those_before(harness: LeaseHarness) -> None:
    assert start(harness) == RedriveBegun(1)
    assert intend(harness, (0, 2), (5, 5)) == BatchAllowed(PRODUCER, 0, 0, harness.wall_ms)
    assert intend(harness, (3, 4), origin=B) == BatchAllowed(PRODUCER, 0, 0, harness.wall_ms)
    end(harness)
    assert intend(harness, (6, 6)) == BatchAllowed(PRODUCER, 0, 4, harness.wall_ms)
    assert done(harness) == {0: ((0, 2), (5, 5))}
    assert redrive(harness).redriven == 4


def test_a_batch_that_was_given_up_ends_its_epoch_and_its_letters_wait_again(harness: LeaseHarness) -> None:
    start(harness)
    intend(harness, (0, 2))
    end(harness, is_done=False, new_epoch=True)
    assert done(harness) == {}
    assert intend(harness, (0, 2)) == BatchAllowed(PRODUCER, 1, 0, harness.wall_ms)


def test_a_new_leader_knows_what_is_under_way(harness: LeaseHarness) -> None:
    start(harness)
    intend(harness, (0, 2))
    intend(harness, (7, 8), origin=B, partition=1)
    harness.change_leader()
    assert redrive(harness).open_runs == ((0, ((0, 2),)), (1, ((7, 8),)))
    found = harness.shard.redrives.topics[TOPIC].running
    assert found is not None
    assert found.batches[A].from_offset == 5
    end(harness)
    end(harness, origin=B)
    assert done(harness) == {0: ((0, 2),), 1: ((7, 8),)}


@pytest.mark.parametrize(
    ("runs", "refusal"),
    [
        (((2, 2),), RedriveRefusal.NOT_WAITING),
        (((20, 21), (9, 9)), RedriveRefusal.INVALID),
        (((9, 8),), RedriveRefusal.INVALID),
        ((), RedriveRefusal.INVALID),
        (((-1, 1),), RedriveRefusal.INVALID),
        (((99, 100),), RedriveRefusal.INVALID),
        (((11, 11),), RedriveRefusal.NOT_WAITING),
    ],
)
def test_letters_that_may_not_be_moved_are_refused(harness: LeaseHarness, runs: Runs, refusal: RedriveRefusal) -> None:
    """Done, out of order, from after the start, or under way to another origin."""
    start(harness)
    intend(harness, (0, 5))
    end(harness)
    intend(harness, (10, 12), origin=B)
    before = list(harness.shard.snapshot())
    assert refused(intend(harness, *runs)) is refusal
    assert list(harness.shard.snapshot()) == before


def test_one_batch_at_a_time_for_each_origin(harness: LeaseHarness) -> None:
    start(harness)
    intend(harness, (0, 1))
    assert refused(intend(harness, (2, 3))) is RedriveRefusal.BUSY


def test_no_more_than_asked_for(harness: LeaseHarness) -> None:
    start(harness, count_max=5)
    intend(harness, (0, 2))
    assert refused(intend(harness, (3, 5), origin=B)) is RedriveRefusal.ENOUGH
    assert isinstance(intend(harness, (3, 4), origin=B), BatchAllowed)


def test_one_redrive_at_a_time_and_a_repeated_request_begins_none(harness: LeaseHarness) -> None:
    assert start(harness) == start(harness) == RedriveBegun(1)
    assert refused(start(harness, producer_id=78)) is RedriveRefusal.RUNNING
    assert refused(harness.ask(PurgeLetters(TOPIC, 0, ((0, 5),)))) is RedriveRefusal.RUNNING
    assert harness.ask(EndRedrive(TOPIC, 1, 2, 3, "why")) == RedriveDone()
    assert redrive(harness)[1:2] + redrive(harness)[7:10] == (RedriveState.FINISHED, 2, 3, "why")
    assert start(harness, producer_id=78) == RedriveBegun(2)
    assert refused(intend(harness, (0, 0))) is RedriveRefusal.NOT_RUNNING, "it is of the redrive before"


def test_a_redrive_that_stops_finishes_what_is_under_way(harness: LeaseHarness) -> None:
    assert refused(harness.ask(StopRedrive(TOPIC))) is RedriveRefusal.NOT_RUNNING
    start(harness)
    intend(harness, (0, 1))
    assert harness.ask(StopRedrive(TOPIC)) == harness.ask(StopRedrive(TOPIC)) == RedriveDone()
    assert refused(intend(harness, (2, 3), origin=B)) is RedriveRefusal.STOPPING
    assert refused(harness.ask(EndRedrive(TOPIC, 1, 0, 0, ""))) is RedriveRefusal.BUSY
    harness.change_leader()
    assert redrive(harness).state is RedriveState.STOPPING
    end(harness)
    harness.ask(EndRedrive(TOPIC, 1, 0, 0, ""))
    assert (redrive(harness).state, done(harness)) == (RedriveState.STOPPED, {0: ((0, 1),)})


def test_progress_is_not_stored_and_a_new_leader_counts_again(harness: LeaseHarness) -> None:
    start(harness)
    log = len(harness.log)
    harness.ask(NoteProgress(TOPIC, 1, 4, 1, "why"))
    assert (redrive(harness).skipped, redrive(harness).failed, redrive(harness).reason) == (4, 1, "why")
    assert len(harness.log) == log
    harness.change_leader()
    assert redrive(harness).reason == ""


def test_purged_letters_are_counted_once(harness: LeaseHarness) -> None:
    assert harness.ask(PurgeLetters(TOPIC, 1, ((0, 4), (8, 8)))) == Purged(6)
    assert harness.ask(PurgeLetters(TOPIC, 1, ((0, 9),))) == Purged(4)
    assert (view(harness).purged, done(harness)) == (10, {1: ((0, 9),)})


def test_what_is_gone_from_the_log_is_forgotten(harness: LeaseHarness) -> None:
    harness.ask(PurgeLetters(TOPIC, 0, ((0, 4), (8, 8))))
    harness.ask(StartRedrive(TOPIC, PRODUCER, 0, "", "", ((3, 100), (0, 0))))
    assert done(harness) == {0: ((3, 4), (8, 8))}


def test_the_state_is_bounded(harness: LeaseHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "DONE_RUNS_MAX", 3)
    assert harness.ask(PurgeLetters(TOPIC, 0, ((0, 0), (2, 2)))) == Purged(2)
    start(harness)
    assert refused(intend(harness, (4, 4), (6, 6))) is RedriveRefusal.TOO_SCATTERED
    assert isinstance(intend(harness, (1, 1)), BatchAllowed)


def test_a_deleted_topic_leaves_nothing(harness: LeaseHarness) -> None:
    start(harness)
    harness.carry_out(harness.shard.forget_topics([TOPIC], harness.now_ms, harness.wall_ms))
    assert not harness.shard.redrives.topics
    assert not harness.shard.redrives.running
    assert not harness.follower.redrives.topics
    assert redrive_key(TOPIC) not in harness.shard.queues


# ---- records ------------------------------------------------------------------------------------


def some_record(random: Random) -> LeaseRecord:
    """Any record about letters, whether it makes sense or not."""
    key = redrive_key(TOPIC, random.randrange(2))
    origin = random.choice([A, B])
    first = random.randrange(50)
    runs = ((first, first + random.randrange(5)), (first + 10, first + 10 + random.randrange(5)))
    started = RedriveStarted(redrive_key(TOPIC), random.randrange(9), 7, 3, 4, (50, 60), '{"key":"é"}', b"\xff\x00")
    batch = (origin, random.randrange(3), random.randrange(9), 5, 6, runs)
    saved = SavedRedrive(started, RedriveState.RUNNING, 0, 5, 0, 0, "", ((A, 1, 2),), (SavedBatch(1, *batch),))
    records: list[LeaseRecord] = [
        started,
        BatchIntended(key, *batch),
        BatchEnded(key, origin, random.random() < 0.5, random.random() < 0.5),
        RedriveStopping(redrive_key(TOPIC)),
        RedriveEnded(redrive_key(TOPIC), RedriveState.STOPPED, 5, 6, 7, "why é"),
        LettersPurged(key, runs),
        LettersSnapshot(redrive_key(TOPIC), 4, 5, ((0, runs), (1, ())), random.choice([None, saved])),
        LogTrimmed(key, random.randrange(60)),
        QueueRemoved(redrive_key(TOPIC)),
        QueueStarted(key, 0),
    ]
    return random.choice(records)


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_records_can_be_replayed(harness: LeaseHarness, seed: int) -> None:
    """And a snapshot at any point rebuilds the state."""
    random = Random(seed)
    for _ in range(100):
        record = some_record(random)
        assert record_from_bytes(*record_to_bytes(record)) == record
        harness.shard.replay(record)
    again = harness.new_shard()
    for each in harness.shard.snapshot():
        again.replay(record_from_bytes(*record_to_bytes(each)))
    assert list(again.snapshot()) == list(harness.shard.snapshot())


def test_records_that_are_cut_or_too_long_are_refused() -> None:
    random = Random(1)
    for _ in range(100):
        key, value = record_to_bytes(some_record(random))
        if value is None or len(value) < 2:
            continue
        for wrong in (value[:-1], value + b"x"):
            with pytest.raises(ValueError, match="a record of lease groups"):
                record_from_bytes(key, wrong)
