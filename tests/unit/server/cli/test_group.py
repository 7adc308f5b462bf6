"""`drmq group` beside brokers that say what a test needs: a shard that does not answer, a paused queue, many leases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from drmq.model import ErrorCode
from drmq.server.cli import main
from drmq.server.cli.output import duration_text
from drmq.wire import ApiKey
from drmq.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResponseResult
from drmq.wire.messages.describe_groups import DescribeGroupsResponse, DescribeGroupsResponseGroup
from drmq.wire.messages.describe_leases import DescribedLease, DescribedQueue, DescribeLeasesResponse
from drmq.wire.messages.find_coordinator import FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from drmq.wire.messages.share_group_describe import (
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseGroup,
    ShareGroupDescribeResponseMember,
)
from support.fake_broker import FakeBroker, broker


def queue(partition: int, **more: Any) -> DescribedQueue:
    known = {"start_offset": 5, "end_offset": 9, "high_watermark": 20, "open_count": 15}
    return DescribedQueue(topic="orders", partition_index=partition, **(known | more))


@contextmanager
def lease_group(*queues: DescribedQueue, dead_letter_topic: str | None = "dlq.billing") -> Iterator[FakeBroker]:
    """A broker with the lease group `billing`, with one member."""
    with broker() as fake:
        coordinator = FindCoordinatorResponseCoordinator(
            key="billing", node_id=1, host=fake.address.host, port=fake.address.port
        )
        member = ShareGroupDescribeResponseMember(member_id="m1", client_id="worker", client_host="/10.0.0.1")
        group = ShareGroupDescribeResponseGroup(group_id="billing", group_state="Stable", members=[member])
        nobody = DescribeGroupsResponseGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_state="Dead")
        leases = DescribeLeasesResponse(dead_letter_topic=dead_letter_topic, queues=list(queues))
        fake.answers |= {
            ApiKey.FIND_COORDINATOR: lambda _: FindCoordinatorResponse(coordinators=[coordinator]),
            ApiKey.DESCRIBE_GROUPS: lambda _: DescribeGroupsResponse(groups=[nobody]),
            ApiKey.SHARE_GROUP_DESCRIBE: lambda _: ShareGroupDescribeResponse(groups=[group]),
            ApiKey.DESCRIBE_LEASES: lambda _: leases,
            ApiKey.DESCRIBE_CONFIGS: lambda _: DescribeConfigsResponse(results=[DescribeConfigsResponseResult()]),
        }
        yield fake


def run(fake: FakeBroker, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert main([*arguments, "-b", str(fake.address)]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_shard_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Its queues are missing, which must not look as if they were empty; the others are shown."""
    silent = DescribedQueue(
        topic="__share_group_state",
        partition_index=7,
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        error_message="queues of the group may be missing here: no leader",
    )
    warning = (
        "warning: Group `billing` cannot be described completely: queues of the group may be missing here: no leader "
        "(COORDINATOR_NOT_AVAILABLE).\n"
    )
    with lease_group(queue(0, held_count=4), silent) as fake:
        for verb in ("lag", "leases", "describe"):
            _, said = run(fake, capsys, "group", verb, "billing")
            assert said == warning, verb
        rows = json.loads(run(fake, capsys, "group", "lag", "billing", "-o", "json")[0])
        assert [(row["partition"], row["lag"], row["out"]) for row in rows] == [(0, 15, 4)]


def test_leader_that_does_not_answer_is_no_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the leader of a partition, its end is not known, and neither is its lag."""
    with lease_group(queue(0), queue(1, high_watermark=-1, open_count=-1)) as fake:
        rows = json.loads(run(fake, capsys, "group", "lag", "billing", "-o", "json")[0])
        assert [row["lag"] for row in rows] == [15, None]
        assert "15 records behind; unknown for 1 partition" in run(fake, capsys, "group", "lag", "billing")[0]


def test_description_says_what_an_operator_must_know(capsys: pytest.CaptureFixture[str]) -> None:
    """Given up, paused, and dead letters that are dropped."""
    with lease_group(queue(0, held_count=4, parked_count=3, dying_count=2, is_paused=True)) as fake:
        shown = run(fake, capsys, "group", "describe", "billing")[0]
        assert shown.startswith(
            "Group `billing`: lease, Stable, 1 member\n"
            "15 records behind.\n"
            "4 records out, 3 parked.\n"
            "0 dead letters in topic `dlq.billing`, 2 more to be written.\n"
            "Paused, because too many records are parked or given up: orders-0.\n"
        )
    with lease_group(queue(0), dead_letter_topic=None) as fake:
        assert "Records that are given up are dropped" in run(fake, capsys, "group", "describe", "billing")[0]


def test_leases_are_listed_with_their_members(capsys: pytest.CaptureFixture[str]) -> None:
    """A member that has left still holds what it had leased; what was not listed is counted."""
    leases = [DescribedLease(5, 7, "m1", 1, 0, 29_500), DescribedLease(8, 8, "gone", 3, 0, 850)]
    with lease_group(queue(0, held_count=10, leases=leases)) as fake:
        shown = run(fake, capsys, "group", "leases", "billing")[0].splitlines()
        assert shown[1].split()[:9] == ["orders", "0", "5-7", "3", "worker", "m1", "1", "29", "s"]
        assert shown[2].split()[:9] == ["orders", "0", "8", "1", "-", "gone", "3", "850", "ms"]
        assert shown[-1] == "10 records out; 4 of them are listed (--max)."
        [member] = json.loads(run(fake, capsys, "group", "members", "billing", "-o", "json")[0])
        assert (member["member_id"], member["out"]) == ("m1", 3)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (-5, "0 ms"),
        (850, "850 ms"),
        (45_000, "45 s"),
        (200_000, "3 min 20 s"),
        (7_200_000, "2 h"),
        (7_260_000, "2 h 1 min"),
        (7_205_000, "2 h"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
