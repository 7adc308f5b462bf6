"""Records of a topic: looking at them, and sending new ones."""

from __future__ import annotations

import asyncio
import base64
import binascii
import threading
from typing import Any, Literal

import msgspec
from msgspec import Struct

from drmq.client import Admin, Bounds, ClientError
from drmq.gateway.appending import Appending, RecordToSend
from drmq.gateway.browse import Browser, Filter, decode_cursor
from drmq.gateway.caller import Caller
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.positions import resolve
from drmq.gateway.problems import ProblemError, problem_of
from drmq.gateway.types import Index, Limit, Name, ProduceAnswer, ProduceRequest, RecordPage, Sent
from drmq.model import TopicPartition


class RecordsParams(Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    topic: Name
    partition: Index | None = None
    order: Literal["newest", "oldest"] = "newest"
    start: str = ""
    """`earliest`, `latest`, an offset, `-N` for N before the end, or `@MS`, a time in milliseconds."""
    limit: Limit = 50
    cursor: str | None = None
    key: str | None = None
    text: str | None = None
    pattern: str | None = None
    header: str | None = None
    json: str | None = None


class ProduceParams(Struct, forbid_unknown_fields=True):
    topic: Name


@endpoint("GET", "/topics/{topic}/records", "Records of a topic, the newest or the oldest first, with a filter.")
async def records(gateway: Gateway, params: RecordsParams, caller: Caller) -> RecordPage:
    ended = threading.Event()
    wanted = Filter(params.key, params.text, params.pattern, params.header, params.json)

    def ask(admin: Admin) -> RecordPage:
        found = admin.topics.describe(params.topic)
        indexes = [each.index for each in found.partitions if params.partition in (None, each.index)]
        if not indexes:
            raise ProblemError(404, f"topic {params.topic} has no partition {params.partition}")
        bounds = admin.topics.bounds([TopicPartition(params.topic, index) for index in indexes])
        if params.cursor is None:
            order, at = params.order, _begin(admin, params, indexes, bounds)
        else:
            cursor = decode_cursor(params.cursor)
            order, at = cursor.order, {index: at for index, at in cursor.at.items() if index in indexes}
            if not at:
                raise ProblemError(400, "this cursor belongs to other partitions; ask again without it")
        with wanted.open() as matches:
            browser = Browser(admin, params.topic, matches, params.limit, lambda: not ended.is_set())
            return (browser.newest_first if order == "newest" else browser.oldest_first)(at, bounds)

    async def take_turn() -> RecordPage:
        async with gateway.browsing.place(caller.host):
            running = asyncio.ensure_future(gateway.admins.run(ask))
            try:
                return await asyncio.shield(running)
            finally:
                # If the client has gone, its thread ends soon. It keeps its place as long as it has its memory.
                ended.set()
                await asyncio.gather(running, return_exceptions=True)

    return await caller.run(take_turn())


def _begin(
    admin: Admin, params: RecordsParams, indexes: list[int], bounds: dict[TopicPartition, Bounds]
) -> dict[int, int]:
    """The offset of each partition at which the page begins, or below which, with the newest first."""
    text = params.start or ("latest" if params.order == "newest" else "earliest")
    places = [TopicPartition(params.topic, index) for index in indexes]
    return {place.partition: offset for place, offset in resolve(admin, text, places, bounds).items()}


@endpoint(
    "POST",
    "/topics/{topic}/records",
    "Send records. The answer comes when all of them are committed.",
    headers={"Idempotency-Key": "A repeat of the request with the same key gets the same answer, and sends nothing."},
)
async def produce(gateway: Gateway, params: ProduceParams, body: ProduceRequest, caller: Caller) -> ProduceAnswer:
    async def send(stored: dict[int, Sent]) -> bytes:
        return msgspec.json.encode(await _send(gateway, params.topic, body, stored))

    key = caller.header("idempotency-key")
    if key is None:
        return await _send(gateway, params.topic, body, {})
    asked = msgspec.json.encode(body)
    answer = await gateway.idempotency.once(f"produce:{params.topic}", key, asked, send)
    return msgspec.json.decode(answer, type=ProduceAnswer)


async def _send(gateway: Gateway, topic: str, body: ProduceRequest, stored: dict[int, Sent]) -> ProduceAnswer:
    """Send all records but those that are stored already. Raises `ProblemError` if any cannot be."""
    records: dict[int, RecordToSend] = {}
    for index, each in enumerate(body.records):
        headers = [(header.name, None if header.value is None else header.value.encode()) for header in each.headers]
        key, value = _bytes(each.key, each.key_format, "key"), _bytes(each.value, each.value_format, "value")
        if index not in stored:
            records[index] = RecordToSend(value, key, headers or None, each.partition, each.timestamp_ms)
    appending = Appending((await gateway.producer()).sender, topic, len(records))
    await appending.send(list(records.values()))
    failure: ClientError | None = None
    for index, result in zip(records, await appending.results(), strict=True):
        if isinstance(result, ClientError):
            failure = failure or result
        else:
            stored[index] = Sent(result.partition, result.offset, result.timestamp)
    if failure is not None:
        found = problem_of(failure)
        if stored:
            found.detail += f" ({len(stored)} of {len(body.records)} records were stored)"
        raise ProblemError(found.status, found.detail, code=found.code, advice=found.advice, retriable=found.retriable)
    return ProduceAnswer([stored[index] for index in range(len(body.records))])


def _bytes(content: Any, form: str, what: str) -> bytes | None:
    if form == "json":
        return None if content is None else msgspec.json.encode(content)
    if content is None:
        return None
    if not isinstance(content, str):
        raise ProblemError(400, f"the {what} must be a string in the format {form}; use the format `json` for others")
    if form == "text":
        return content.encode()
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise ProblemError(400, f"the {what} is not base64") from None
