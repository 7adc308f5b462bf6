"""Finding where a reader begins: a topic that is not known yet keeps no thread busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.client import Bounds, ClientError
from drmq.client.topics import topic_refusal
from drmq.gateway.grpc import fetch_stream
from drmq.model import ErrorCode, TopicPartition
from drmq.v1 import log_pb2 as pb


class Pool:
    """Runs calls at once, with an administrator who knows the topic from some call on."""

    def __init__(self, known_from: int) -> None:
        self.calls = self.described = 0
        self._known_from = known_from
        self._admin = SimpleNamespace(topics=SimpleNamespace(describe=self._describe, bounds=self._bounds))

    async def run(self, action: Callable[[Any], Any]) -> Any:
        self.calls += 1
        return action(self._admin)

    def _describe(self, name: str) -> Any:
        self.described += 1
        if self.described < self._known_from:
            raise topic_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        return SimpleNamespace(partitions=[SimpleNamespace(index=0)])

    def _bounds(self, places: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return dict.fromkeys(places, Bounds(3, 7))


async def begin(pool: Pool) -> dict[int, int]:
    gateway = cast("Any", SimpleNamespace(admins=pool))
    return await fetch_stream._resolved(gateway, "new", pb.Position(edge=pb.EDGE_START), [])


def test_a_thread_is_free_while_a_topic_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_stream, "_UNKNOWN_PAUSE_S", 0.01)
    pool = Pool(known_from=3)
    assert asyncio.run(begin(pool)) == {0: 3}
    assert pool.calls == 3, "each look is a call of its own"


def test_a_topic_that_does_not_come_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_stream, "UNKNOWN_GRACE_S", 0.05)
    monkeypatch.setattr(fetch_stream, "_UNKNOWN_PAUSE_S", 0.01)
    with pytest.raises(ClientError) as caught:
        asyncio.run(begin(Pool(known_from=10**9)))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
