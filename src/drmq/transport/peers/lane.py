"""One kind of traffic to one peer: the connection is dialled, greeted, used, and dialled again when it breaks.

A lane is in one of three states:

    off       not wanted, or waiting until it may dial again
    dialling  until the peer has answered the greeting
    ready     the only state in which messages are sent

A lane that broke is dialled again after a pause, which doubles with each failure and is reset once a connection has
lasted for the longest pause. A connection that this node closes itself, to greet again, is dialled again at once, and a
few messages are held for it. A node does so when it has just joined: its peers wait for these messages, and without
them Raft would need several heartbeats to notice the loss.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drmq.model import ErrorCode, GroupId
from drmq.telemetry.system_errors import in_words
from drmq.transport.connection import Buffer
from drmq.transport.peers.codec import REQUEST_KIND_MAX, Request, decode_answer, encode_request
from drmq.transport.peers.errors import PeerRefused, PeerUnavailable
from drmq.transport.peers.frames import Frame, FrameType
from drmq.transport.peers.hello import (
    UnknownVersion,
    decode_hello,
    decode_refusal,
    encode_hello,
    encode_offer,
    encode_refusal,
)
from drmq.transport.peers.messages import ConnectionKind, GreetingRefusal, Hello, PeerMessage, RefusalCode
from drmq.transport.peers.silence import CEILING
from drmq.transport.peers.stream import Stream
from drmq.wire import ProtocolError

if TYPE_CHECKING:
    from drmq.transport.peers.link import Link


log = logging.getLogger("drmq.transport.peers")

_ABSENT_CEILING = 3
"""How many times longer than configured an attempt may take that does not even connect."""
_HELD_MESSAGES_MAX = 64
"""Messages that are held while a connection is renewed. Further ones are dropped, as they are without a connection."""


class Lane:
    """One lane. Owned by the link to its peer, which starts and stops it and is notified of its state."""

    def __init__(self, link: Link, kind: ConnectionKind) -> None:
        self._link = link
        self.kind = kind
        self.hello: Hello | None = None
        """The peer's answer to our greeting, while the lane is ready."""
        self.failure: str | None = None
        """Why the last attempt failed; None if it did not fail, or the first attempt is in progress."""
        self.ended: str | None = None
        """Why there is no connection, if there was one or an attempt was made."""
        self.dropped_messages = 0
        self._stream: Stream | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_pausing = False
        self._dial_ms = link.options.dial_timeout_ms
        """How long the next attempt may take. It doubles when the peer does not answer in time: it may be busy."""
        self._renewed_until = 0.0
        """The deadline for renewing a connection that this node has closed itself; 0 if none is being renewed."""
        self._held: list[tuple[GroupId, PeerMessage]] = []
        """Messages to be sent once the connection has been renewed."""
        self._attempt: Stream | None = None
        """The connection that is being opened or used. Events of earlier attempts are ignored."""
        self._greeted: asyncio.Future[bool]
        self._lost: asyncio.Future[str]

    @property
    def is_ready(self) -> bool:
        return self.hello is not None and self._stream is not None and not self._stream.is_closed

    @property
    def buffered_bytes(self) -> int:
        return 0 if self._stream is None else self._stream.buffered_bytes

    # ---- lifecycle ------------------------------------------------------------------------------

    def start(self) -> None:
        """Dial now, and keep dialling. Does nothing while there is a connection, or one is being opened."""
        if self._task is not None and self._is_pausing:
            self._task.cancel()
        elif self._task is not None and not self._task.done():
            return
        self.failure = None
        self._is_pausing = False
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(_report_bug)

    def stop(self, reason: str) -> asyncio.Task[None] | None:
        """Close the connection after sending what is buffered. Returns the task, which is about to end."""
        self.renew(reason)
        self._renewed_until = 0.0
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._become_off(reason)
        return task

    def abort(self, reason: str) -> None:
        """Break the connection and dial again. Held messages are dropped: they were for an earlier process."""
        self._renewed_until = 0.0
        self._drop_held()
        if self._stream is not None:
            self._stream.abort(reason)

    def renew(self, reason: str) -> None:
        """Close the connection after sending what is buffered, and dial again at once: the peer works."""
        if self._stream is not None:
            now = asyncio.get_running_loop().time()
            self._renewed_until = now + self._link.options.dial_timeout_ms / 1_000
            self._stream.close(reason)

    def end_if_stalled(self, now: float) -> None:
        if self._stream is not None:
            self._stream.end_if_stalled(now)

    async def _run(self) -> None:
        options = self._link.options
        pause_s = options.redial_ms_min / 1_000
        pause_s_max = options.redial_ms_max / 1_000
        loop = asyncio.get_running_loop()
        while True:
            started_at = loop.time()
            was_ready, reason = await self._connect_once()
            if not was_ready:
                self._renewed_until = 0.0
            self._become_off(reason)
            if was_ready:
                log.debug("the %s connection with %s is lost: %s", self.kind.name, self._link.address, reason)
            else:
                self.failure = reason
                self._link.on_lane_failed(self, reason)
            if was_ready and loop.time() - started_at > pause_s_max:
                pause_s = options.redial_ms_min / 1_000
            if not self._renewed_until:
                self._is_pausing = True
                await asyncio.sleep(pause_s)
                self._is_pausing = False
                pause_s = min(2 * pause_s, pause_s_max)
            if not self._link.may_dial(self):
                return

    async def _connect_once(self) -> tuple[bool, str]:
        """Open one connection and wait for its end. Returns whether it was ever ready, and why it ended."""
        loop = asyncio.get_running_loop()
        self._greeted, self._lost = loop.create_future(), loop.create_future()
        stream = self._attempt = Stream(self, self._link.streams)
        dial_ms = self._dial_ms
        try:
            async with asyncio.timeout(dial_ms / 1_000):
                await loop.create_connection(lambda: stream, self._link.host, self._link.port)
                is_greeted = await self._greeted
            self._dial_ms = self._link.options.dial_timeout_ms
            return is_greeted, await self._lost
        except TimeoutError:
            # Without a connection it may also be absent, and must be noticed soon when it returns.
            ceiling = CEILING if self._stream is stream else _ABSENT_CEILING
            self._dial_ms = min(2 * dial_ms, ceiling * self._link.options.dial_timeout_ms)
            return False, f"no answer from {self._link.address} within {dial_ms} ms"
        except (OSError, UnicodeError) as error:
            return False, f"{self._link.address} cannot be reached: {in_words(error)}"
        finally:
            # Does nothing if the connection is already closing: it may still be sending.
            stream.abort("the attempt is over")
            if self._attempt is stream:
                self._attempt = None

    def _become_off(self, reason: str) -> None:
        self.hello = None
        self._stream = None
        self.ended = reason
        if not self._renewed_until:
            self._drop_held()

    def _drop_held(self) -> None:
        self.dropped_messages += len(self._held)
        self._held.clear()

    # ---- the connection, from its stream --------------------------------------------------------

    def on_connected(self, stream: Stream) -> None:
        if stream is not self._attempt:
            stream.abort("the attempt is over")
            return
        self._stream = stream
        own = self._link.own_hello(self.kind)
        stream.send_frame(FrameType.HELLO, encode_hello(own), (encode_offer(own),))

    def on_frame(self, stream: Stream, frame: Frame) -> None:
        if stream is not self._stream:
            return
        if self.hello is not None:
            self._on_answer(frame)
        elif frame.type == FrameType.REFUSAL:
            refusal = decode_refusal(frame)
            self._refused(stream, GreetingRefusal(refusal.code, f"the peer refuses: {refusal.text}"), by_peer=True)
        elif frame.type == FrameType.HELLO:
            self._on_hello(stream, frame)
        else:
            raise ProtocolError(f"received a frame of type {frame.type} instead of a greeting")

    def _on_hello(self, stream: Stream, frame: Frame) -> None:
        try:
            hello = decode_hello(frame.head, frame.payload)
            refusal = self._link.check_hello(hello, self.kind)
        except UnknownVersion as error:
            refusal = GreetingRefusal(RefusalCode.VERSION, str(error))
        if refusal is not None:
            stream.send_frame(FrameType.REFUSAL, *encode_refusal(refusal))
            self._refused(stream, GreetingRefusal(refusal.code, f"this node refuses: {refusal.text}"), by_peer=False)
            return
        stream.accept(self.kind)
        self.hello = hello
        self.failure = self.ended = None
        self._greeted.set_result(True)
        self._link.on_lane_ready(self, hello)
        self._send_held()

    def _send_held(self) -> None:
        """Send the held messages on the new connection, or drop them if it took so long that they are obsolete."""
        if asyncio.get_running_loop().time() > self._renewed_until:
            self._drop_held()
        self._renewed_until = 0.0
        held, self._held = self._held, []
        for group, message in held:
            self.send_message(group, message)

    def _refused(self, stream: Stream, refusal: GreetingRefusal, *, by_peer: bool) -> None:
        self._link.on_refused(refusal, by_peer=by_peer)
        stream.close(refusal.text)

    def _on_answer(self, frame: Frame) -> None:
        raise ProtocolError(f"received a frame of type {frame.type} on a connection that is for sending only")

    def on_lost(self, stream: Stream, reason: str) -> None:
        if stream is not self._attempt:
            return
        self._become_off(reason)
        if not self._greeted.done():
            self._greeted.set_result(False)
        if not self._lost.done():
            self._lost.set_result(reason)

    # ---- sending --------------------------------------------------------------------------------

    def send_message(self, group: GroupId, message: PeerMessage) -> None:
        stream = self._stream
        if self._renewed_until and len(self._held) < _HELD_MESSAGES_MAX:
            self._held.append((group, message))
        elif stream is None or self.hello is None or not stream.has_room:
            self.dropped_messages += 1
        elif not stream.send_message(group, message):
            self.dropped_messages += 1
            log.error(
                "a %s of group %s is larger than the largest frame; it cannot be sent, and the group makes no progress",
                type(message).__name__,
                group,
                extra={"repeat_key": f"too large for peers: {group}"},
            )

    def send_frame(self, frame_type: FrameType, head: bytes = b"") -> None:
        stream = self._stream
        if stream is None or self.hello is None or not stream.has_room or not stream.send_frame(frame_type, head):
            self.dropped_messages += 1


def _report_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a connection to a peer is no longer dialled, because of a bug", exc_info=error)


class RequestLane(Lane):
    """The lane for requests. Every request that was sent gets an answer, or an error if none will arrive."""

    def __init__(self, link: Link) -> None:
        super().__init__(link, ConnectionKind.REQUEST)
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def request(self, kind: int, payload: Sequence[Buffer]) -> bytes:
        """Send a request and wait for its answer. Raises `PeerUnavailable` or `PeerRefused`."""
        assert 0 <= kind <= REQUEST_KIND_MAX, kind
        node_id = self._link.node_id
        stream = self._stream
        if stream is None or not self.is_ready:
            raise PeerUnavailable(node_id, self.ended or "there is no connection")
        if not stream.has_room:
            self.dropped_messages += 1
            raise PeerUnavailable(node_id, f"{stream.buffered_bytes} bytes are waiting to be sent to it")
        number = next(self._numbers)
        if not stream.send_frame(FrameType.REQUEST, encode_request(Request(number, kind)), payload):
            text = f"the request has {sum(map(len, payload))} bytes, which is more than a frame can have"
            raise PeerRefused(node_id, ErrorCode.MESSAGE_TOO_LARGE, text)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def _on_answer(self, frame: Frame) -> None:
        if frame.type != FrameType.ANSWER:
            raise ProtocolError(f"received a frame of type {frame.type} instead of an answer")
        answer = decode_answer(frame.head)
        future = self._waiting.get(answer.number)
        if future is None or future.done():
            # The caller has stopped waiting.
            return
        if answer.is_served:
            future.set_result(bytes(frame.payload))
        else:
            future.set_exception(PeerRefused(self._link.node_id, answer.code, answer.text))

    def _become_off(self, reason: str) -> None:
        super()._become_off(reason)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(PeerUnavailable(self._link.node_id, reason, is_outcome_open=True))
