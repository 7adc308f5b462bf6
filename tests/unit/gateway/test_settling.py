"""Settlements of one call: what is repeated is sent once, and all of it takes one time."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from drmq.client import Unreachable
from drmq.gateway.ack_ids import AckId
from drmq.gateway.settling import Settler, Wanted
from drmq.wire.messages.lease_fetch import (
    LeaseFetchRequest,
    LeaseFetchResponse,
    LeaseFetchResponsePartition,
    LeaseFetchResponseTopic,
)

TOPIC = bytes(16)
MEMBER = str(uuid.uuid4())


class Node:
    """A node that leads all partitions, and answers for partition 0 only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[LeaseFetchRequest] = []
        self.settler = Settler("127.0.0.1:1", "test")
        monkeypatch.setattr(self.settler, "ask", self.ask)
        monkeypatch.setattr(self.settler, "leader_of", lambda place: place[1])

    async def ask(self, node_id: int, request: LeaseFetchRequest) -> LeaseFetchResponse:
        self.requests.append(request)
        if node_id:
            raise Unreachable("Broker 1 is not available")
        return LeaseFetchResponse(
            topics=[LeaseFetchResponseTopic(TOPIC, [LeaseFetchResponsePartition(partition_index=0)])]
        )


def wanted(partition: int, outcome: int, offset: int = 7) -> Wanted:
    return Wanted(AckId(MEMBER, TOPIC, partition, offset, 1), outcome)


def test_the_same_settlement_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        node = Node(monkeypatch)
        results = await node.settler.settle("crew", [wanted(0, 1)] * 500 + [wanted(0, 4), wanted(0, 1)])
        assert [each.code for each in results] == ["ok"] * 502
        assert len(node.requests) == 2, "a request has each record once, so the extension needs another one"

    asyncio.run(main())


def test_settlements_that_follow_each_other_share_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        node = Node(monkeypatch)
        asked = [wanted(partition, outcome) for outcome in (1, 2, 3, 4, 5) for partition in (0, 1)]
        began_s = time.monotonic()
        results = await node.settler.settle("crew", asked, timeout_s=0.5)
        assert time.monotonic() - began_s < 1.5
        assert [each.code for each in results[:2]] == ["ok", "unavailable"]
        assert {each.code for each in results[3::2]} == {"unavailable"}

    asyncio.run(main())
