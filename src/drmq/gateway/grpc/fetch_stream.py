"""Reading by offset or time: one call, and a stream that goes on with what is appended later."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from drmq.client import Admin, ClientError
from drmq.gateway.fetching import UNKNOWN_GRACE_S, TopicReader
from drmq.gateway.gateway import Gateway
from drmq.gateway.grpc.checks import check_topic, in_range
from drmq.gateway.grpc.messages import records_of
from drmq.gateway.grpc.methods import Call
from drmq.gateway.grpc.status import bad_request
from drmq.gateway.positions import resolve
from drmq.gateway.problems import ProblemError
from drmq.model import ErrorCode, TopicPartition
from drmq.v1 import log_pb2 as pb

RECORDS_MAX: Final = 10_000
BYTES_DEFAULT: Final = 1_048_576
BYTES_MAX: Final = 8 * 1_048_576
WAIT_MS_MAX: Final = 30_000
_OFFSET_MAX: Final = 2**63 - 1
_UNKNOWN_PAUSE_S: Final = 0.1


async def fetch(gateway: Gateway, request: pb.FetchRequest) -> pb.FetchResponse:
    """Some records of one partition."""
    check_topic(request.topic)
    in_range(request.partition, 0, 2**31 - 1, "partition")
    records_max = in_range(request.max_records, 0, RECORDS_MAX, "max_records") or RECORDS_MAX
    bytes_max = in_range(request.max_bytes, 0, BYTES_MAX, "max_bytes") or BYTES_DEFAULT
    wait_ms = in_range(request.wait_ms, 0, WAIT_MS_MAX, "wait_ms")
    position = request.position
    if position.WhichOneof("at") == "offset":
        offset = in_range(position.offset, 0, _OFFSET_MAX, "offset")
    else:
        offset = (await _resolved(gateway, request.topic, position, [request.partition]))[request.partition]
    found = await gateway.fetcher.fetch(
        request.topic, request.partition, offset, records_max=records_max, bytes_max=bytes_max, wait_ms=wait_ms
    )
    records = [] if found.columns is None else records_of(request.partition, found.columns)
    return pb.FetchResponse(records=records, next_offset=found.next_offset, end_offset=found.end_offset)


async def fetch_stream(gateway: Gateway, request: pb.FetchStreamRequest, call: Call) -> None:
    """Records of a topic, until the client or the end of the topic ends the stream."""
    check_topic(request.topic)
    bytes_max = in_range(request.max_bytes, 0, BYTES_MAX, "max_bytes") or BYTES_DEFAULT
    for partition, offset in request.offsets.items():
        in_range(partition, 0, 2**31 - 1, "a partition of offsets")
        in_range(offset, 0, _OFFSET_MAX, "an offset of offsets")
    position = request.position
    if position.WhichOneof("at") == "offset":
        in_range(position.offset, 0, _OFFSET_MAX, "offset")
    chosen = sorted(set(request.partitions))
    positions = await _resolved(gateway, request.topic, position, chosen)
    unknown = request.offsets.keys() - positions.keys()
    if unknown:
        raise bad_request(f"offsets names partition {min(unknown)}, which is not read")
    positions |= dict(request.offsets)
    ends = None
    if request.until_end:
        ends = await _resolved(gateway, request.topic, pb.Position(edge=pb.EDGE_END), list(positions))
    reader = TopicReader(
        gateway.fetcher,
        request.topic,
        positions,
        ends=ends,
        finds_new=not chosen and not request.until_end,
        records_max=RECORDS_MAX,
        bytes_max=bytes_max,
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reader.run())
            while (chunk := await reader.next_chunk()) is not None:
                response = pb.FetchStreamResponse(records=records_of(chunk.partition, chunk.columns))
                response.next_offsets[chunk.partition] = chunk.next_offset
                await call.write(response)
    finally:
        reader.close()


async def _resolved(gateway: Gateway, topic: str, position: pb.Position, partitions: list[int]) -> dict[int, int]:
    """The offset of a position in these partitions, or in all. Raises `ProblemError` and `ClientError`."""
    text = _text(position)

    def ask(admin: Admin) -> dict[int, int]:
        existing = {each.index for each in admin.topics.describe(topic).partitions}
        missing = set(partitions) - existing
        if missing:
            raise ProblemError(
                404,
                f"topic {topic} has no partition {min(missing)}",
                code="UNKNOWN_TOPIC_OR_PARTITION",
                advice="DescribeTopic lists its partitions.",
            )
        places = [TopicPartition(topic, index) for index in partitions or sorted(existing)]
        found = resolve(admin, text, places, admin.topics.bounds(places))
        return {place.partition: offset for place, offset in found.items()}

    until_s = time.monotonic() + UNKNOWN_GRACE_S
    while True:
        try:
            return await gateway.admins.run(ask)
        except ClientError as error:
            # The node that was asked may not know the topic yet, if it has just been created.
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or time.monotonic() > until_s:
                raise
        # Not in a thread of the pool: all calls about the cluster share a few of them.
        await asyncio.sleep(_UNKNOWN_PAUSE_S)


def _text(position: pb.Position) -> str:
    """A position as the HTTP door names it."""
    kind = position.WhichOneof("at")
    if kind == "offset":
        return str(position.offset)
    if kind == "time_ms":
        return f"@{in_range(position.time_ms, 0, _OFFSET_MAX, 'time_ms')}"
    if kind == "before_end":
        return f"-{in_range(position.before_end, 0, _OFFSET_MAX, 'before_end')}"
    return "latest" if position.edge == pb.EDGE_END else "earliest"
