"""Live data over one WebSocket: a page subscribes to streams, and gets a snapshot of each once a second.

    {"type": "subscribe", "stream": "overview"}
    {"type": "snapshot", "stream": "overview", "sequence": 17, "time_ms": ..., "dropped": 0, "data": {...}}

A page that reads too slowly misses snapshots and is told how many (`dropped`); nothing is queued for it. Browsers send
the origin of the page, and a page of another origin is refused: otherwise any web site that a user visits could read
the cluster through the user's browser. Pages of the cluster's other gateways are accepted.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from drmq.client import ClientError

if TYPE_CHECKING:
    from drmq.gateway.gateway import Gateway

MESSAGE_BYTES_MAX: Final = 65_536
STREAMS_MAX: Final = 16
SOCKETS_MAX: Final = 200
_SEND_TIMEOUT_S = 30.0
_POLICY_VIOLATION, _TOO_BIG, _TRY_LATER = 1008, 1009, 1013


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """What a page asks for."""

    type: Literal["subscribe", "unsubscribe"]
    stream: str
    resolution_ms: int = 1000


class Snapshot(msgspec.Struct):
    type: str
    stream: str
    sequence: int
    time_ms: int
    dropped: int
    data: Any


STREAMS: Final = ("overview",)


def origin_is_allowed(origin: str | None, host: str | None, others: list[str]) -> bool:
    """Whether a page of this origin may open a socket. Programs that are no browsers send no origin."""
    if origin is None:
        return True
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return False
    return parts.netloc == host or parts.netloc in others


async def live(gateway: Gateway, socket: WebSocket) -> None:
    """Serve one page until it goes away."""
    others = [each.http for each in gateway.addresses()]
    if not origin_is_allowed(socket.headers.get("origin"), socket.headers.get("host"), others):
        await socket.close(_POLICY_VIOLATION, "a page of this origin may not read the cluster")
        return
    if gateway.socket_count >= SOCKETS_MAX:
        await socket.close(_TRY_LATER, f"this gateway has {SOCKETS_MAX} sockets")
        return
    await socket.accept()
    gateway.socket_count += 1
    streams: set[str] = set()
    reading = asyncio.ensure_future(_read(socket, streams))
    sending = asyncio.ensure_future(_send(gateway, socket, streams))
    try:
        await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gateway.socket_count -= 1
        for task in (reading, sending):
            task.cancel()
        await asyncio.gather(reading, sending, return_exceptions=True)


async def _read(socket: WebSocket, streams: set[str]) -> None:
    while True:
        try:
            text = await socket.receive_text()
        except (WebSocketDisconnect, KeyError, RuntimeError):
            return  # gone, or a binary message
        if len(text) > MESSAGE_BYTES_MAX:
            await socket.close(_TOO_BIG, f"a message may have {MESSAGE_BYTES_MAX} bytes")
            return
        try:
            wanted = msgspec.json.decode(text, type=Subscription)
        except msgspec.DecodeError as error:
            await socket.send_text(_error(f"this is not a subscription: {error}"))
            continue
        if wanted.stream not in STREAMS:
            await socket.send_text(_error(f"there is no stream {wanted.stream!r}; there is {', '.join(STREAMS)}"))
        elif wanted.type == "subscribe":
            streams.add(wanted.stream)
        else:
            streams.discard(wanted.stream)


def _error(text: str) -> str:
    return msgspec.json.encode({"type": "error", "detail": text}).decode()


async def _send(gateway: Gateway, socket: WebSocket, streams: set[str]) -> None:
    last = gateway.sampler.sequence
    while True:
        gateway.sampler.watch()
        await gateway.sampler.wait()
        sequence = gateway.sampler.sequence
        if not streams:
            last = sequence
            continue
        try:
            data = await gateway.overview()
        except ClientError as error:
            await socket.send_text(_error(str(error)))
            continue
        snapshot = Snapshot(
            "snapshot", "overview", sequence, int(time.time() * 1000), max(0, sequence - last - 1), data
        )
        last = sequence
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await socket.send_text(msgspec.json.encode(snapshot).decode())
