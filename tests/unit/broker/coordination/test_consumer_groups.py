"""The driver of group shards: no answer before its records are durable, none that rests on lost ones."""

from __future__ import annotations

import errno
import re
from dataclasses import replace
from functools import partial

import pytest

from drmq import groups
from drmq.broker import BrokerOptions, GroupShardCoordinator, Partition
from drmq.broker.partitions.partition import OWN_BATCH_BYTES_MAX
from drmq.model import ApiError, ErrorCode, Offset
from drmq.testing.files import FakeFiles
from drmq.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from support.broker_harness import Harness

GROUP = "readers"
Answer = groups.GroupResponse | ErrorCode


def a_commit(offset: int, topic: str = "orders") -> groups.OffsetCommitRequest:
    return groups.OffsetCommitRequest(GROUP, (groups.OffsetToCommit(topic, 0, Offset(offset)),))


def a_join(member_id: str = "") -> groups.JoinGroupRequest:
    return groups.JoinGroupRequest(GROUP, member_id, "consumer", (groups.Protocol("range", b""),), 10_000, 20_000)


def hand_in(harness: Harness, request: groups.GroupRequest) -> tuple[list[Answer], GroupShardCoordinator, int]:
    """Hand a request in; the list that its answer will be in, and where it waits."""
    answers: list[Answer] = []
    shard = harness.broker.groups.shard_of(GROUP)
    assert isinstance(shard, GroupShardCoordinator)
    ticket = harness.run(_on_loop(shard, request, answers))
    return answers, shard, ticket


async def _on_loop(shard: GroupShardCoordinator, request: groups.GroupRequest, answers: list[Answer]) -> int:
    return shard.submit(request, answers.append)


def committed(harness: Harness) -> int:
    answers, _, _ = hand_in(harness, groups.OffsetFetchRequest(GROUP, None))
    harness.settle()
    [answer] = answers
    assert isinstance(answer, groups.OffsetFetchResponse)
    return answer.offsets[0].offset if answer.offsets else -1


def test_an_answer_waits_for_the_disk_also_if_it_wrote_nothing_itself(harness: Harness) -> None:
    stored: list[Answer] = []
    read: list[Answer] = []

    def both() -> None:
        shard = harness.broker.groups.shard_of(GROUP)
        shard.submit(a_commit(5), stored.append)
        shard.submit(groups.OffsetFetchRequest(GROUP, None), read.append)
        assert stored == read == []

    harness.call(both)
    assert len(stored) == len(read) == 1


def test_the_commits_of_a_turn_share_a_batch_and_a_sync(harness: Harness, files: FakeFiles) -> None:
    """Consumers that commit each record would otherwise wait for each other's syncs."""
    committed(harness)
    answers: list[Answer] = []
    shards = list(harness.broker.groups.shards.values())

    def batches() -> int:
        return sum(shard.log.batch_count for shard in shards)

    def syncs() -> int:
        return sum(count for operation, count in files.counts.items() if "sync" in operation)

    def commit_all() -> None:
        for offset in range(50):
            harness.broker.groups.shard_of(GROUP).submit(a_commit(offset), answers.append)

    before = batches(), syncs()
    harness.call(commit_all)
    assert len(answers) == 50
    assert batches() == before[0] + 1
    assert syncs() <= before[1] + 3
    assert committed(harness) == 49


def test_groups_survive_the_loss_of_power(harness: Harness, files: FakeFiles) -> None:
    hand_in(harness, a_commit(5))
    harness.settle()
    member_id, generation = harness.join(GROUP)
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        assert committed(again) == 5
        answers, _, _ = hand_in(again, groups.HeartbeatRequest(GROUP, generation, member_id))
        again.settle()
        assert answers == [groups.HeartbeatResponse(ErrorCode.NONE)]


def test_a_full_disk_is_answered_and_what_was_decided_then_is_not_true(harness: Harness, files: FakeFiles) -> None:
    hand_in(harness, a_commit(5))
    harness.settle()
    files.fail("write", errno.ENOSPC, path_part="__consumer_offsets")
    lost, _, _ = hand_in(harness, a_commit(6))
    harness.settle()
    assert lost == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    harness.settle()
    assert committed(harness) == 5
    again, _, _ = hand_in(harness, a_commit(7))
    harness.settle()
    assert isinstance(again[0], groups.OffsetCommitResponse)
    assert committed(harness) == 7


def refuse(partition: Partition, size_bytes: int) -> None:
    """As a partition does while its lead is handed over: it still leads, and takes nothing."""
    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the lead of {partition!r} is being handed over")


def test_a_generation_that_the_log_refused_is_told_to_nobody(
    harness: Harness, files: FakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    member_id, generation = harness.join(GROUP)

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "check_may_append", refuse)
        refused, _, _ = hand_in(harness, a_join(member_id))
        harness.settle()
        assert refused == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        # Nothing has changed, so the group is as it was.
        beats, _, _ = hand_in(harness, groups.HeartbeatRequest(GROUP, generation, member_id))
        harness.settle()
        assert beats == [groups.HeartbeatResponse(ErrorCode.NONE)]
    joined, _, _ = hand_in(harness, a_join(member_id))
    harness.settle()
    [answer] = joined
    assert isinstance(answer, groups.JoinGroupResponse)
    assert (answer.error, answer.generation) == (ErrorCode.NONE, generation + 1)
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        late, _, _ = hand_in(again, groups.HeartbeatRequest(GROUP, generation, member_id))
        again.settle()
        assert late == [groups.HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION)]


def test_sessions_still_end_after_the_log_has_refused(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a session is itself something to write. If that is refused it comes again, and no timer is lost."""
    member_id, generation = harness.join(GROUP)

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "check_may_append", refuse)
        harness.advance(11_000)
    harness.advance(11_000)
    answers, _, _ = hand_in(harness, groups.HeartbeatRequest(GROUP, generation, member_id))
    harness.settle()
    assert answers == [groups.HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID)]


def test_a_failed_sync_makes_the_shard_unavailable_for_good(harness: Harness, files: FakeFiles) -> None:
    files.fail("sync", errno.EIO, path_part="journal")
    files.fail("sync", errno.EIO, path_part="__consumer_offsets")
    for offset in (5, 6):
        answers, _, _ = hand_in(harness, a_commit(offset))
        harness.settle()
        assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


# ---- what no frame between nodes would take -----------------------------------------------------------


def test_a_commit_that_is_too_large_is_refused_and_disturbs_nobody(harness: Harness) -> None:
    """150 KB in the request, 70 MB in the log: no follower could ever be sent it."""
    group_id = "\0" * 1_024
    offsets = tuple(groups.OffsetToCommit("orders", index, Offset(1)) for index in range(11_000))
    shard = harness.broker.groups.shard_of(group_id)
    assert isinstance(shard, GroupShardCoordinator)
    neighbour = next(name for name in map(str, range(100)) if harness.broker.groups.shard_of(name) is shard)
    harness.join(neighbour)
    parked: list[Answer] = []
    harness.call(lambda: shard.submit(replace(a_join(), group_id=neighbour), parked.append))
    end_offset = shard.log.partition.next_offset

    refused: list[Answer] = []
    harness.call(lambda: shard.submit(groups.OffsetCommitRequest(group_id, offsets), refused.append))
    assert refused == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    assert shard.log.partition.next_offset == end_offset
    assert parked == []
    half: list[Answer] = []
    harness.call(lambda: shard.submit(groups.OffsetCommitRequest(group_id, offsets[::2]), half.append))
    [answer] = half
    assert isinstance(answer, groups.OffsetCommitResponse)
    assert {result.error for result in answer.results} == {ErrorCode.NONE}


def test_an_assignment_that_is_too_large_is_answered_and_a_smaller_one_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # A quarter of this is the share of a caller, and more than a batch may have.
    with Harness(FakeFiles(), BrokerOptions(group_state_bytes_max=1 << 30)) as harness:
        _try_large_assignment(harness, caplog)


def _try_large_assignment(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    joined, _, _ = hand_in(harness, a_join())
    harness.settle()
    [place] = joined
    assert isinstance(place, groups.JoinGroupResponse)

    def sync(assignment: bytes) -> list[Answer]:
        share = groups.MemberAssignment(place.member_id, assignment)
        answers, _, _ = hand_in(
            harness, groups.SyncGroupRequest(GROUP, place.generation, place.member_id, assignments=(share,))
        )
        harness.settle()
        return answers

    assert sync(bytes(OWN_BATCH_BYTES_MAX)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert any("__consumer_offsets" in record.message and "too large" in record.message for record in caplog.records)
    [answer] = sync(b"everything")
    assert isinstance(answer, groups.SyncGroupResponse)
    assert (answer.error, answer.assignment) == (ErrorCode.NONE, b"everything")


@pytest.mark.parametrize("why", ["deleted", "expired"])
def test_many_deletions_are_several_batches(harness: Harness, why: str) -> None:
    group_id = "\0" * 1_024
    shard = harness.broker.groups.shard_of(group_id)
    assert isinstance(shard, GroupShardCoordinator)
    for first in range(0, 12_000, 6_000):
        part = tuple(groups.OffsetToCommit("orders", index, Offset(1)) for index in range(first, first + 6_000))
        harness.call(partial(shard.submit, groups.OffsetCommitRequest(group_id, part), lambda answer: None))
    assert len(shard.machine.replicated.offsets) == 12_000
    if why == "deleted":
        harness.call(lambda: harness.broker.groups.forget_topics(["orders"]))
    else:
        for _ in range(2):
            # The second time for what was too much to wait for the disk at once.
            harness.call(lambda: shard.expire_offsets(harness.clock.wall_ms() + 8 * 24 * 3_600_000))
    assert len(shard.machine.replicated.offsets) == 0


# ---- min.insync.replicas is about acks=all, and nobody produces to a machine's log ------------------


def test_groups_are_served_although_topics_ask_for_more_replicas_than_a_shard_has() -> None:
    with Harness(FakeFiles(), BrokerOptions(min_insync_replicas=2)) as harness:
        stored, _, _ = hand_in(harness, a_commit(5))
        harness.settle()
        assert [type(answer) for answer in stored] == [groups.OffsetCommitResponse]
        assert committed(harness) == 5


@pytest.mark.parametrize(
    ("options", "limit"),
    [(BrokerOptions(groups_max=4), "groups_max"), (BrokerOptions(group_state_bytes_max=1), "group_state_bytes_max")],
    ids=["groups", "bytes"],
)
def test_the_log_names_the_limit_that_refuses_a_commit(
    options: BrokerOptions, limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer has room for a code only, so an operator sees it nowhere else."""
    with Harness(FakeFiles(), options) as harness:
        answers = []
        for name in ("readers", "other readers"):
            answers += hand_in(harness, replace(a_commit(5), group_id=name))[0]
            harness.settle()
        [*_, refused] = answers
        assert isinstance(refused, groups.OffsetCommitResponse)
        assert [result.error for result in refused.results] != [ErrorCode.NONE]
        warned = [record for record in caplog.records if record.levelname == "WARNING"]
        assert any(re.search(rf"\b{limit}\b", record.getMessage()) for record in warned)


def test_the_members_of_a_caller_count_against_its_share() -> None:
    with Harness(FakeFiles(), BrokerOptions(group_state_bytes_max=40_000)) as harness:
        join = replace(a_join(), protocols=(groups.Protocol("range", bytes(4_000)),))
        for expected in ([], [groups.JoinGroupResponse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")]):
            answers, _, _ = hand_in(harness, join)
            harness.settle()
            assert [each for each in answers if getattr(each, "error", None) is not ErrorCode.NONE] == expected


def test_the_setting_of_the_offsets_topic_itself_holds_no_answer_back(harness: Harness) -> None:
    setting = AlterConfigsRequestConfig("min.insync.replicas", "2")
    altered = harness.ask(AlterConfigsRequest([AlterConfigsRequestResource(2, "__consumer_offsets", [setting])]), 1)
    assert altered.responses[0].error_code == 0
    shard = harness.broker.groups.shard_of(GROUP)
    assert isinstance(shard, GroupShardCoordinator)
    assert shard.log.partition.config.min_insync_replicas == 2
    hand_in(harness, a_commit(5))
    harness.settle()
    assert committed(harness) == 5


def test_a_replica_that_falls_behind_fails_no_answer_that_a_majority_can_make_durable() -> None:
    with Harness(FakeFiles(), BrokerOptions(min_insync_replicas=2)) as harness:
        stored: list[Answer] = []

        def commit_then_notice() -> None:
            shard = harness.broker.groups.shard_of(GROUP)
            assert isinstance(shard, GroupShardCoordinator)
            shard.submit(a_commit(5), stored.append)
            assert shard.log.partition.set_in_sync(())

        harness.call(commit_then_notice)
        assert [type(answer) for answer in stored] == [groups.OffsetCommitResponse]


def test_sessions_end_when_their_time_is_up(harness: Harness) -> None:
    member_id, generation = harness.join(GROUP)
    harness.advance(11_000)
    answers, _, _ = hand_in(harness, groups.HeartbeatRequest(GROUP, generation, member_id))
    harness.settle()
    assert answers == [groups.HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID)]


def test_a_parked_request_whose_connection_is_gone_is_never_answered(harness: Harness) -> None:
    harness.join(GROUP)
    parked, shard, ticket = hand_in(harness, a_join())
    harness.call(lambda: shard.on_disconnect([ticket]))
    harness.advance(30_000)
    assert parked == []


def test_stopping_sends_whoever_waits_away(harness: Harness) -> None:
    harness.join(GROUP)
    parked, _, _ = hand_in(harness, a_join())
    harness.close()
    [answer] = parked
    assert isinstance(answer, groups.JoinGroupResponse)
    assert answer.error is ErrorCode.NOT_COORDINATOR


def test_offsets_of_deleted_topics_are_forgotten(harness: Harness) -> None:
    hand_in(harness, a_commit(5))
    harness.settle()
    harness.call(lambda: harness.broker.groups.forget_topics(["orders"]))
    assert committed(harness) == -1


def test_groups_are_spread_over_the_shards(harness: Harness) -> None:
    counts = dict.fromkeys(harness.broker.groups.shards.values(), 0)
    for number in range(100):
        shard = harness.broker.groups.shard_of(f"group-{number}")
        assert isinstance(shard, GroupShardCoordinator)
        counts[shard] += 1
    assert all(count > 10 for count in counts.values())


def test_a_topic_that_is_deleted_while_the_node_stops_is_forgotten_by_the_next_coordinator() -> None:
    """The shard has resigned, and its log still leads: whatever comes then is not its business any more."""
    with Harness(FakeFiles()) as harness:
        shard = harness.broker.groups.shard_of("readers")
        assert isinstance(shard, GroupShardCoordinator)
        harness.call(shard.stop)
        assert shard.log.leads
        harness.call(lambda: shard.forget_topics(["orders"], []))
        harness.call(lambda: shard.expire_offsets(1 << 60))
        assert not shard.machine.is_leader
