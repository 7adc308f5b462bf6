"""Limits of calls, with a server of its own: slow readers, bugs, and the end of streams when a gateway stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from drmq.gateway.grpc import methods
from drmq.gateway.grpc.methods import Call, Stopping, handlers
from drmq.gateway.observed import CallCounters
from drmq.v1 import log_pb2 as log
from drmq.v1 import log_pb2_grpc
from drmq.v1.records_pb2 import Record
from support.grpc_client import failure
from support.polling import PATIENCE_S

SERVICE = log.DESCRIPTOR.services_by_name["LogService"]


class Endless:
    """A service that sends for ever, or fails."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def append(self, request: log.AppendRequest, call: Call) -> log.AppendResponse:
        raise KeyError(request.topic)

    async def append_stream(self, requests: AsyncIterator[log.AppendStreamRequest], call: Call) -> None:
        async for _ in requests:
            pass

    async def fetch(self, request: log.FetchRequest, call: Call) -> log.FetchResponse:
        await asyncio.sleep(3_600)
        return log.FetchResponse()

    async def fetch_stream(self, request: log.FetchStreamRequest, call: Call) -> None:
        try:
            while True:
                await call.write(log.FetchStreamResponse(records=[Record(value=b"x" * 1_000_000)]))
        finally:
            self.ended.set()


@asynccontextmanager
async def served(service: Endless, stopping: Stopping) -> AsyncIterator[Any]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handlers(SERVICE, service, stopping, CallCounters()),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield log_pb2_grpc.LogServiceStub(channel)
    await server.stop(0)


async def to_the_end(call: Any) -> None:
    while await call.read():
        pass


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "SLOW_READER_S", 0.3)

    async def run() -> None:
        service = Endless()
        async with served(service, Stopping()) as stub:
            call = stub.FetchStream(log.FetchStreamRequest(topic="t"))
            await call.read()
            async with asyncio.timeout(PATIENCE_S):
                await service.ended.wait()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await to_the_end(call)
            assert failure(caught.value)[0] == "RESOURCE_EXHAUSTED"

    asyncio.run(run())


def test_a_stream_ends_with_a_hint_when_the_gateway_stops() -> None:
    async def run() -> None:
        service, stopping = Endless(), Stopping()
        async with served(service, stopping) as stub:
            call = stub.FetchStream(log.FetchStreamRequest(topic="t"))
            await call.read()
            stopping.set()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await to_the_end(call)
            assert failure(caught.value) == ("UNAVAILABLE", "UNAVAILABLE", True)
            assert service.ended.is_set()

    asyncio.run(run())


def test_a_call_without_a_deadline_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "CALL_S_MAX", 0.2)

    async def run() -> None:
        async with served(Endless(), Stopping()) as stub:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Fetch(log.FetchRequest(topic="t"))
            assert failure(caught.value)[::2] == ("DEADLINE_EXCEEDED", True)

    asyncio.run(run())


def test_a_bug_is_logged_and_does_not_tell_the_client_more_than_that(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with served(Endless(), Stopping()) as stub:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Append(log.AppendRequest(topic="secret"))
            assert failure(caught.value)[0] == "INTERNAL"
            assert "secret" not in caught.value.details()

    with caplog.at_level(logging.ERROR, "drmq.gateway"):
        asyncio.run(run())
    assert "drmq.v1.LogService.Append failed on a bug" in caplog.text


def test_a_method_without_a_function_is_found_at_the_start() -> None:
    with pytest.raises(AttributeError, match="append"):
        handlers(SERVICE, object(), Stopping(), CallCounters())
