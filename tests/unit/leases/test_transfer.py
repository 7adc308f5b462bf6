"""Messages to a shard on another node survive their bytes."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.leases import (
    Acquire,
    Acquired,
    Advance,
    Bury,
    Delivery,
    DescribeQueues,
    Done,
    ExpireMember,
    Failed,
    Failure,
    LeaseView,
    Outcome,
    QueueBegun,
    QueueList,
    QueueView,
    Refusal,
    Refused,
    ReleaseMember,
    RemoveQueues,
    Settle,
    Settlement,
    SettleResult,
    StartQueue,
    Withdraw,
)
from drmq.leases.transfer import (
    Problem,
    requests_from_bytes,
    requests_to_bytes,
    responses_from_bytes,
    responses_to_bytes,
)
from drmq.model import ErrorCode
from support.lease_harness import KEY, TOPIC

REQUESTS: list[Any] = [
    StartQueue(KEY, 5, restart=True),
    StartQueue(KEY, 5, caller="/127.0.0.1"),
    Acquire(KEY, "m", 10, 1, 20, 500, 7),
    Withdraw(KEY, "m", 7),
    Advance(KEY, 1, 20),
    Settle(KEY, "m", tuple(Settlement(i, i, outcome, 7, 3) for i, outcome in enumerate(Outcome))),
    Settle(KEY, "m", (Settlement(1, 2, Outcome.RELEASE),)),
    ReleaseMember(KEY, "m"),
    ExpireMember("g", "m"),
    Bury(KEY, ((1, 2), (4, 4))),
    RemoveQueues("g"),
    RemoveQueues("g", TOPIC),
    DescribeQueues("g", leases_max=7),
]
VIEW = QueueView(KEY, 1, 9, 2, 3, 4, 5, None, True, (LeaseView(1, 2, "m", 1, 7, 900),))
RESPONSES: list[Any] = [
    *(Failed(failure) for failure in Failure),
    QueueBegun(5),
    Acquired(7, 30_000, (Delivery(1, 2, 1), Delivery(4, 4, 3))),
    SettleResult(tuple(Refused(1, 2, refusal) for refusal in Refusal)),
    Done(),
    QueueList((VIEW,)),
    Problem(ErrorCode.NOT_COORDINATOR, "another node leads"),
]


def test_requests_survive() -> None:
    again = requests_from_bytes(requests_to_bytes(REQUESTS))
    assert again == REQUESTS
    assert [type(each) for each in again] == [type(each) for each in REQUESTS]


def test_a_node_of_an_older_release_names_no_caller() -> None:
    data = requests_to_bytes([StartQueue(KEY, 5, restart=True)]).replace(b',""]]', b"]]")
    assert data.endswith(b"5,true]]")
    assert requests_from_bytes(data) == [StartQueue(KEY, 5, restart=True)]


def test_responses_survive() -> None:
    again = responses_from_bytes(responses_to_bytes(RESPONSES))
    assert again == RESPONSES
    assert [type(each) for each in again] == [type(each) for each in RESPONSES]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'[["Nothing"]]', b'[["Settle",["g"],"m",[]]]', b'[["Acquired",1]]', b"[1]", b'[["Problem",9999,""]]'],
)
def test_what_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        requests_from_bytes(data)
