"""Live data over one WebSocket: a page subscribes to streams, and gets a snapshot of each at its resolution.

    {"type": "subscribe", "stream": "overview", "resolution_ms": 1000}
    {"type": "snapshot", "stream": "overview", "sequence": 17, "time_ms": ..., "dropped": 0, "data": {...}}
    {"type": "event", "event": {...}, "dropped": 0}

Events of nodes are sent at once, whatever the resolution is.

A page that reads too slowly costs a bounded amount of memory: one snapshot of each stream waits for it, which a newer
one replaces, and a few events. What was replaced is counted, and `dropped` tells it. A page that reads nothing for half
a minute is disconnected.

Browsers send the origin of the page, and a page of another origin is refused: otherwise any web site that a user visits
could read the cluster through the user's browser. Pages of the cluster's other gateways are accepted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from starlette.websockets import WebSocket, WebSocketDisconnect

from drmq.client import ClientError
from drmq.gateway.problems import BUG, ProblemError, problem, respond
from drmq.gateway.record_text import shown_size
from drmq.gateway.streams import NAMES, TAIL, TailData
from drmq.gateway.tail import RECORDS_MAX, Arrived
from drmq.gateway.types import EventView, RecordView

if TYPE_CHECKING:
    from drmq.gateway.gateway import Gateway

log = logging.getLogger("drmq.gateway")

MESSAGE_BYTES_MAX: Final = 65_536
STREAMS_MAX: Final = 16
SOCKETS_MAX: Final = 200
EVENTS_WAITING_MAX: Final = 100
TAIL_WAITING_MAX: Final = 1_000
"""Records that wait for a page which watches a topic. It gets the last ones."""
TAIL_WAITING_BYTES_MAX: Final = 2 * 1_048_576
SEND_TIMEOUT_S: Final = 30.0
_WATCH_S: Final = 10.0
_TOO_BIG = 1009


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """What a page asks for. To subscribe again changes the resolution."""

    type: Literal["subscribe", "unsubscribe"]
    stream: Annotated[str, Meta(max_length=300)]
    resolution_ms: Annotated[int, Meta(ge=1000, le=60_000)] = 1000


class Snapshot(msgspec.Struct):
    """The data of a stream. `dropped` snapshots (of a tail: records) before it were not sent."""

    type: str
    stream: str
    sequence: int
    time_ms: int
    dropped: int
    data: Any


class EventMessage(msgspec.Struct):
    type: str
    event: EventView
    dropped: int


def origin_is_allowed(origin: str | None, host: str | None, others: list[str]) -> bool:
    """Whether a page of this origin may open a socket. Programs that are no browsers send no origin."""
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return False
    return parts.netloc == host or parts.netloc in others


async def live(gateway: Gateway, socket: WebSocket) -> None:
    """Serve one page until it goes away."""
    others = [each.http for each in gateway.addresses()]
    if not origin_is_allowed(socket.headers.get("origin"), socket.headers.get("host"), others):
        await socket.send_denial_response(respond(problem(403, "a page of this origin may not read the cluster")))
        return
    if gateway.socket_count >= SOCKETS_MAX:
        refused = problem(
            503,
            f"this gateway has {SOCKETS_MAX} sockets",
            advice="Use another gateway, or close a page.",
            retriable=True,
        )
        await socket.send_denial_response(respond(refused))
        return
    await socket.accept()
    gateway.socket_count += 1
    page = _Page(gateway, socket)
    try:
        await page.run()
    finally:
        gateway.socket_count -= 1


class _Waiting:
    """What waits to be sent for one stream: the last data, and how much of what came before it was not sent."""

    def __init__(self) -> None:
        self.sequence = 0
        self.dropped = 0
        self.data: Any = None
        self.time_ms = 0


class _Page:
    """One socket."""

    def __init__(self, gateway: Gateway, socket: WebSocket) -> None:
        self._gateway = gateway
        self._socket = socket
        self._feeds: dict[str, asyncio.Task[None]] = {}
        """By stream: the task that finds its data."""
        self._waiting: dict[str, _Waiting] = {}
        self._ready: dict[str, None] = {}
        """Streams that have something to send, in their order."""
        self._events: deque[EventView] = deque()
        self._events_dropped = 0
        self._errors: deque[str] = deque(maxlen=STREAMS_MAX)
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Serve the page until it goes away, or reads nothing for too long."""
        tasks = [asyncio.ensure_future(each) for each in (self._read(), self._send(), self._watch())]
        self._gateway.sampler.listeners.add(self._on_events)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._gateway.sampler.listeners.discard(self._on_events)
            for task in (*tasks, *self._feeds.values()):
                task.cancel()
            await asyncio.gather(*tasks, *self._feeds.values(), return_exceptions=True)

    async def _watch(self) -> None:
        """Keep the sampler at its short interval while somebody looks."""
        while True:
            if self._feeds:
                self._gateway.sampler.watch()
            await asyncio.sleep(_WATCH_S)

    # ---- requests -------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            try:
                text = await self._socket.receive_text()
            except (WebSocketDisconnect, KeyError, RuntimeError):
                return  # gone, or a binary message
            if len(text) > MESSAGE_BYTES_MAX:
                await self._socket.close(_TOO_BIG, f"a message may have {MESSAGE_BYTES_MAX} bytes")
                return
            try:
                wanted = msgspec.json.decode(text, type=Subscription)
            except (msgspec.DecodeError, RecursionError) as error:
                self._put_error(None, f"this is not a subscription: {error}")
                continue
            self._stop(wanted.stream)
            if wanted.type == "subscribe":
                self._start(wanted.stream, wanted.resolution_ms / 1000)

    def _start(self, stream: str, resolution_s: float) -> None:
        find = self._gateway.streams.snapshot_of(stream)
        if find is None and not (stream.startswith(TAIL) and len(stream) > len(TAIL)):
            self._put_error(stream, f"there is no stream {stream!r:.300}; there are {', '.join(NAMES)}")
            return
        if len(self._feeds) >= STREAMS_MAX:
            self._put_error(stream, f"a page may watch {STREAMS_MAX} streams")
            return
        self._gateway.sampler.watch()
        if find is None:
            feed = self._tail(stream, resolution_s)
        elif stream == "overview":
            feed = self._overviews(find, resolution_s)
        else:
            feed = self._snapshots(stream, find, resolution_s)
        self._waiting[stream] = _Waiting()
        self._feeds[stream] = asyncio.ensure_future(feed)

    def _stop(self, stream: str) -> None:
        feed = self._feeds.pop(stream, None)
        if feed is not None:
            feed.cancel()
        self._waiting.pop(stream, None)
        self._ready.pop(stream, None)

    # ---- finding data ---------------------------------------------------------------------------

    async def _overviews(self, find: Callable[[], Awaitable[Any]], resolution_s: float) -> None:
        """An overview for each sample, or for every so many of them."""
        sampler = self._gateway.sampler
        due_s = 0.0
        while True:
            await sampler.wait()
            now_s = time.monotonic()
            if now_s < due_s:
                continue
            # Samples come about once a second: half of that is the least distance to the next one that is wanted.
            due_s = now_s + resolution_s - 0.5
            await self._find("overview", find)

    async def _snapshots(self, stream: str, find: Callable[[], Awaitable[Any]], resolution_s: float) -> None:
        while True:
            began_s = time.monotonic()
            await self._find(stream, find)
            await asyncio.sleep(max(0.1, began_s + resolution_s - time.monotonic()))

    async def _find(self, stream: str, find: Callable[[], Awaitable[Any]]) -> None:
        try:
            data = await find()
        except ClientError as error:
            self._put_error(stream, str(error))
        except ProblemError as error:
            self._put_error(stream, error.problem.detail)
        except Exception:
            # The page must not wait for ever, and the next look may succeed.
            log.exception("looking for stream %s failed on a bug", stream)
            self._put_error(stream, BUG)
        else:
            waiting = self._waiting[stream]
            if waiting.data is data:
                return  # nobody has looked again since
            if stream in self._ready:
                waiting.dropped += 1
            waiting.data = data
            self._put(stream)

    async def _tail(self, stream: str, resolution_s: float) -> None:
        waiting: list[RecordView] = []
        missed = 0

        def on_arrived(news: Arrived | ClientError | ProblemError) -> None:
            nonlocal missed
            if not isinstance(news, Arrived):
                self._put_error(stream, news.problem.detail if isinstance(news, ProblemError) else str(news))
                return
            missed += news.missed
            waiting.extend(news.records)
            room = min(TAIL_WAITING_MAX, int(RECORDS_MAX * resolution_s))
            left = _fitting(waiting[-room:], TAIL_WAITING_BYTES_MAX)
            missed += len(waiting) - len(left)
            waiting[:] = left

        try:
            tail = self._gateway.streams.tail(stream)
        except ProblemError as error:
            self._put_error(stream, error.problem.detail)
            return
        tail.listen(on_arrived)
        try:
            while True:
                await asyncio.sleep(resolution_s)
                # While the last ones are not sent yet, the next ones wait here, up to the limit.
                if (waiting or missed) and stream not in self._ready:
                    slot = self._waiting[stream]
                    slot.data, slot.dropped = TailData(list(waiting)), missed
                    waiting.clear()
                    missed = 0
                    self._put(stream)
        finally:
            tail.leave(on_arrived)

    # ---- sending --------------------------------------------------------------------------------

    def _put(self, stream: str) -> None:
        waiting = self._waiting[stream]
        waiting.sequence += 1
        waiting.time_ms = int(time.time() * 1000)
        self._ready[stream] = None
        self._news.set()

    def _put_error(self, stream: str | None, text: str) -> None:
        message = {"type": "error", "stream": stream, "detail": text}
        self._errors.append(msgspec.json.encode(message).decode())
        self._news.set()

    def _on_events(self, events: Sequence[EventView]) -> None:
        if not self._feeds:
            return
        self._events.extend(events)
        while len(self._events) > EVENTS_WAITING_MAX:
            self._events.popleft()
            self._events_dropped += 1
        self._news.set()

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._errors or self._events or self._ready:
                # A page that reads nothing must not keep a socket for ever.
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._socket.send_text(self._next())

    def _next(self) -> str:
        if self._errors:
            return self._errors.popleft()
        if self._events:
            dropped, self._events_dropped = self._events_dropped, 0
            return msgspec.json.encode(EventMessage("event", self._events.popleft(), dropped)).decode()
        stream = next(iter(self._ready))
        del self._ready[stream]
        waiting = self._waiting[stream]
        dropped, waiting.dropped = waiting.dropped, 0
        data = waiting.data
        if not stream.startswith(TAIL):
            data = self._gateway.streams.encode(stream, data)
        snapshot = Snapshot("snapshot", stream, waiting.sequence, waiting.time_ms, dropped, data)
        return msgspec.json.encode(snapshot).decode()


def _fitting(records: list[RecordView], size_max: int) -> list[RecordView]:
    """The last records that have no more than so many bytes together."""
    size, count = 0, 0
    for record in reversed(records):
        size += shown_size(record)
        if size > size_max:
            break
        count += 1
    return records[len(records) - count :]
