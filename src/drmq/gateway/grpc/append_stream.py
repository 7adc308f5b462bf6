"""Appending records: those of one call, and those of a stream, whose requests are answered in their order.

A stream has at most `STREAM_BYTES_MAX` bytes of records on their way. Beyond that the next request is not read, so that
the flow control of HTTP/2 slows the client down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from drmq.client import ClientError
from drmq.client.messages import SendResult
from drmq.client.sender import Sender
from drmq.gateway.appending import Appending, RecordToSend
from drmq.gateway.grpc.checks import check_topic
from drmq.gateway.grpc.methods import Call
from drmq.gateway.grpc.status import CallFailed, bad_request, item_error
from drmq.gateway.problems import problem_of
from drmq.v1 import log_pb2 as pb
from drmq.v1.records_pb2 import NewRecord

RECORDS_MAX: Final = 10_000
STREAM_BYTES_MAX: Final = 16 * 1_048_576
STREAM_REQUESTS_MAX: Final = 64


async def append(sender: Sender, request: pb.AppendRequest) -> pb.AppendResponse:
    """Append the records of one call. Raises `CallFailed` if any was not stored."""
    check_topic(request.topic)
    results = await (await _begin(sender, request.topic, request.records)).results()
    response = pb.AppendResponse(results=map(_result, results))
    failures = [each for each in results if isinstance(each, ClientError)]
    if failures:
        found = problem_of(failures[0])
        stored = len(results) - len(failures)
        if stored:
            found.detail += f" ({stored} of {len(results)} records were stored: see the details of the status)"
        raise CallFailed(found, [response])
    return response


async def _begin(sender: Sender, topic: str, records: Iterable[NewRecord]) -> Appending:
    found = [_record(each) for each in records]
    if not 0 < len(found) <= RECORDS_MAX:
        raise bad_request(f"a request has from 1 to {RECORDS_MAX} records, and this one {len(found)}")
    appending = Appending(sender, topic, len(found))
    await appending.send(found)
    return appending


def _record(record: NewRecord) -> RecordToSend:
    partition: int | None = None
    timestamp_ms: int | None = None
    if record.HasField("partition"):
        partition = record.partition
        if partition < 0:
            raise bad_request(f"there is no partition {partition}")
    if record.HasField("timestamp_ms"):
        timestamp_ms = record.timestamp_ms
        if timestamp_ms < 0:
            raise bad_request(f"timestamp_ms is {timestamp_ms}, and must not be negative")
    headers = None
    if record.headers:
        headers = [(each.name, each.value if each.HasField("value") else None) for each in record.headers]
    return RecordToSend(
        record.value if record.HasField("value") else None,
        record.key if record.HasField("key") else None,
        headers,
        partition,
        timestamp_ms,
    )


def _result(result: SendResult | ClientError) -> pb.AppendedRecord:
    if isinstance(result, ClientError):
        return pb.AppendedRecord(error=item_error(result))
    return pb.AppendedRecord(partition=result.partition, offset=result.offset, timestamp_ms=result.timestamp)


class AppendStream:
    """One stream. Lives on the event loop."""

    def __init__(self, sender: Sender, call: Call) -> None:
        self._sender = sender
        self._call = call
        self._on_their_way: asyncio.Queue[tuple[Appending, int] | None] = asyncio.Queue(STREAM_REQUESTS_MAX)
        self._bytes = 0
        self._has_room = asyncio.Event()

    async def run(self, requests: AsyncIterator[pb.AppendStreamRequest]) -> None:
        failure: CallFailed | None = None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._answer())
            try:
                await self._read(requests)
            except CallFailed as error:
                # What came before the bad request is on its way, and its answers too.
                failure = error
            await self._on_their_way.put(None)
        if failure is not None:
            raise failure

    async def _read(self, requests: AsyncIterator[pb.AppendStreamRequest]) -> None:
        topic = ""
        async for request in requests:
            topic = request.topic or topic
            check_topic(topic)
            size = request.ByteSize()
            appending = await _begin(self._sender, topic, request.records)
            self._bytes += size
            await self._on_their_way.put((appending, size))
            while self._bytes > STREAM_BYTES_MAX:
                self._has_room.clear()
                await self._has_room.wait()

    async def _answer(self) -> None:
        while (found := await self._on_their_way.get()) is not None:
            appending, size = found
            results = await appending.results()
            self._bytes -= size
            self._has_room.set()
            await self._call.write(pb.AppendStreamResponse(results=map(_result, results)))
