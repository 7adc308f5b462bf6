"""A lease stream whose client does not read its answers: what waits for it is limited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.gateway.grpc import lease_stream
from drmq.gateway.grpc.lease_stream import CREDITS_MAX, LeaseStream
from drmq.gateway.grpc.status import CallFailed
from drmq.v1 import leases_pb2 as pb

ANSWERS_MAX = 100


class SlowCall:
    """A client that reads nothing until it may."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.failures = 0

    async def write(self, response: pb.LeaseResponse) -> None:
        await self.may_read.wait()
        self.failures += len(response.settled.failures)


def a_stream(call: SlowCall, monkeypatch: pytest.MonkeyPatch) -> LeaseStream:
    """A stream that has subscribed, and whose first delivery has ended."""
    stream = LeaseStream("127.0.0.1:1", cast("Any", call))
    session = SimpleNamespace(buffer=None, flush=lambda timeout_s: asyncio.sleep(0))
    monkeypatch.setattr(lease_stream, "ANSWERS_MAX", ANSWERS_MAX, raising=False)
    monkeypatch.setattr(stream, "_session", session)
    monkeypatch.setattr(stream, "_next_id", 2)
    monkeypatch.setattr(stream, "_subscribe", lambda wanted: asyncio.sleep(0))
    monkeypatch.setattr(stream, "_deliver", lambda: asyncio.sleep(3_600))
    return stream


def settling(count: int) -> pb.LeaseRequest:
    return pb.LeaseRequest(settle=pb.Settle(outcome=pb.OUTCOME_ACK, delivery_ids=[1] * count))


def test_requests_are_not_read_while_many_answers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        call, count, sent = SlowCall(), 50, 0

        async def requests() -> AsyncIterator[pb.LeaseRequest]:
            nonlocal sent
            yield pb.LeaseRequest(subscribe=pb.Subscribe())
            for _ in range(count):
                sent += 1
                yield settling(10)
                await asyncio.sleep(0)

        running = asyncio.ensure_future(a_stream(call, monkeypatch).run(requests()))
        for _ in range(10 * count):
            await asyncio.sleep(0)
        assert sent < count, "those that are not read slow the client down"
        call.may_read.set()
        await running
        assert (sent, call.failures) == (count, 10 * count)

    asyncio.run(main())


def test_a_request_settles_no_more_than_a_client_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        stream = a_stream(SlowCall(), monkeypatch)
        stream._on_request(settling(CREDITS_MAX))
        with pytest.raises(CallFailed, match="up to 10000"):
            stream._on_request(settling(CREDITS_MAX + 1))

    asyncio.run(main())
