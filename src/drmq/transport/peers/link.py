"""One peer: the lanes to it, and whether it is up.

A peer is *up* when both heartbeat connections are open, ours to it and its own to us, and our other lanes as well, so
that the first message to a peer that came up is not lost. All of them must be from the same start of its process.

It is down when nothing was received from it for too long, or when the connection to it broke and it accepts no new one.
All lanes are then broken: they may lead to a machine that is gone, and would hold messages for minutes. The connections
that the peer has opened are closed only because of silence: a peer that shuts down cleanly sends its last messages on
them.

The heartbeat lane comes first. The others are dialled once it is ready, so an absent peer costs one attempt at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from drmq.model import GroupId, NodeId
from drmq.model.address import Address
from drmq.transport.connection import Buffer
from drmq.transport.peers.codec import NOTICES_PER_FRAME_MAX, encode_notices
from drmq.transport.peers.errors import PeerUnavailable
from drmq.transport.peers.frames import FrameType
from drmq.transport.peers.interface import PeerStatus
from drmq.transport.peers.lane import Lane, RequestLane
from drmq.transport.peers.messages import (
    ConnectionKind,
    GreetingRefusal,
    Hello,
    LeaderNotice,
    PeerMessage,
    RefusalCode,
    kind_of,
)
from drmq.transport.peers.silence import Silence

if TYPE_CHECKING:
    from drmq.transport.peers.network import PeerNetwork


log = logging.getLogger("drmq.transport.peers")


class Link:
    """Everything about one peer that was added by `set_peer`. Owned by the network."""

    def __init__(self, network: PeerNetwork, node_id: NodeId, host: str, port: int) -> None:
        self._network = network
        self.options = network.options
        self.streams = network.streams
        self.node_id = node_id
        self.host = host
        self.port = port
        self._heartbeats = Lane(self, ConnectionKind.HEARTBEAT)
        self._requests = RequestLane(self)
        self._lanes = {
            ConnectionKind.HEARTBEAT: self._heartbeats,
            ConnectionKind.APPEND: Lane(self, ConnectionKind.APPEND),
            ConnectionKind.SNAPSHOT: Lane(self, ConnectionKind.SNAPSHOT),
            ConnectionKind.REQUEST: self._requests,
        }
        self._waiting: set[asyncio.Future[None]] = set()
        """Requests that wait for a connection."""
        self._hello: Hello | None = None
        self._refusal: GreetingRefusal | None = None
        self._is_refused_by_peer = False
        self._failure_said: str | None = None
        self._silence = Silence(self.options.peer_timeout_ms / 1_000)
        self._heard_ms: int | None = None
        self.is_up = False
        self._up_is_due = False
        """A heartbeat connection was opened, and the handler has not been notified yet."""

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    @property
    def last_heard_ms(self) -> int | None:
        return self._heard_ms

    @property
    def status(self) -> PeerStatus:
        return PeerStatus(
            host=self.host,
            port=self.port,
            is_up=self.is_up,
            buffered_bytes=sum(lane.buffered_bytes for lane in self._lanes.values()),
            dropped_messages=sum(lane.dropped_messages for lane in self._lanes.values()),
            refusal=None if self._refusal is None else self._refusal.text,
            failure=self._heartbeats.ended,
            hello=self._hello,
            last_heard_ms=self._heard_ms,
            refusal_code=self._refusal.code if self._refusal is not None and self._is_refused_by_peer else None,
            is_connected=self._heartbeats.is_ready,
        )

    @property
    def hello(self) -> Hello | None:
        """The peer's last greeting."""
        return self._hello

    # ---- lifecycle ------------------------------------------------------------------------------

    def start(self) -> None:
        self._heartbeats.start()

    def stop(self, reason: str) -> list[asyncio.Task[None]]:
        """Stop all lanes. Returns their tasks, which are about to end."""
        tasks = [lane.stop(reason) for lane in self._lanes.values()]
        self._fail_waiting(reason)
        return [task for task in tasks if task is not None]

    def move(self, host: str, port: int) -> list[asyncio.Task[None]]:
        """Dial the peer at its new address. Returns the tasks of the old connections, which are about to end."""
        self.host, self.port = host, port
        tasks = self.stop(f"the peer moved to {self.address}")
        self.start()
        return tasks

    def greet_again(self) -> None:
        """Renew all connections, because this node's identity has changed."""
        for lane in self._lanes.values():
            lane.renew("the identity of this node has changed")

    def tick(self, now: float) -> None:
        """Called once per heartbeat interval."""
        if self._heartbeats.is_ready:
            self._heartbeats.send_frame(FrameType.NODE_HEARTBEAT)
        for lane in self._lanes.values():
            lane.end_if_stalled(now)
        if self.is_up and self._silence.is_too_long(now):
            reason = f"nothing was received from it for {self._silence.length_s(now) * 1_000:.0f} ms"
            self._network.abort_inbound(self.node_id, reason)
            self.become_down(reason)

    def forgive(self, late_s: float, now: float) -> None:
        """Do not count `late_s` against the peer: this process did not run then, so it could not receive anything."""
        self._silence.forgive(late_s, now)

    @property
    def silence_limit_s(self) -> float:
        """How long the peer may be silent at present."""
        return self._silence.limit_s

    # ---- up and down ----------------------------------------------------------------------------

    def on_heard(self, now: float, now_ms: int) -> None:
        """Called for a greeting, and for any frame on the peer's heartbeat connection."""
        self._silence.on_heard(now)
        self._heard_ms = now_ms

    def on_hello(self, hello: Hello, now: float, now_ms: int) -> None:
        """Called when a greeting of the peer was accepted, on a connection that either side opened."""
        if self._hello is None or self._hello.boot_id != hello.boot_id:
            self._silence.on_started(now)
        self._hello = hello
        self.on_heard(now, now_ms)
        if self._refusal is not None:
            log.info("node %d at %s is accepted", self.node_id, self.address)
        self._refusal = self._failure_said = None
        for lane in self._lanes.values():
            if lane.hello is not None and lane.hello.boot_id != hello.boot_id:
                lane.abort("the peer's process has restarted")
        if hello.kind is ConnectionKind.HEARTBEAT:
            self._up_is_due = True
        if self._up_is_due:
            self._maybe_become_up(hello)

    def _maybe_become_up(self, hello: Hello) -> None:
        greeted = self._network.hello_from(self.node_id)
        if greeted is None or not all(lane.is_ready for lane in self._lanes.values()):
            return
        self._up_is_due = False
        if not self.is_up:
            log.info("node %d at %s is up", self.node_id, self.address)
        self.is_up = True
        self._network.notify_handler(self._network.handler.on_peer_up, replace(hello, kind=ConnectionKind.HEARTBEAT))

    def become_down(self, reason: str) -> None:
        """Consider the peer down, if it was up, and break the connections to it."""
        if not self.is_up:
            return
        log.warning("node %d at %s is down: %s", self.node_id, self.address, reason)
        self._network.down_count += 1
        self._failure_said = reason
        self.is_up = False
        for lane in self._lanes.values():
            lane.abort(f"the peer is down: {reason}")
        self._network.notify_handler(self._network.handler.on_peer_down, self.node_id)

    # ---- called by lanes ------------------------------------------------------------------------

    def own_hello(self, kind: ConnectionKind) -> Hello:
        return Hello.of(self._network.identity, kind, self.node_id)

    def check_hello(self, hello: Hello, kind: ConnectionKind) -> GreetingRefusal | None:
        """Why the answer to our greeting is not acceptable, or None."""
        if hello.kind is not kind:
            text = f"it answers for a {hello.kind.name} connection, but a {kind.name} connection was requested"
            return GreetingRefusal(RefusalCode.WRONG_NODE, text)
        return self._network.check_hello(hello, self.node_id)

    def may_dial(self, lane: Lane) -> bool:
        """Whether a lane that broke may dial again without being started."""
        return lane is self._heartbeats or self._heartbeats.is_ready

    def on_lane_ready(self, lane: Lane, hello: Hello) -> None:
        self._network.on_hello(hello)
        if not lane.is_ready:
            # When it was notified that the peer is up, the handler has closed the connections with it.
            return
        if lane is self._heartbeats:
            for other in self._lanes.values():
                other.start()
        elif lane is self._requests:
            waiting, self._waiting = self._waiting, set()
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def on_lane_failed(self, lane: Lane, reason: str) -> None:
        if lane is self._heartbeats:
            self.become_down(reason)
            if self._refusal is None and reason != self._failure_said:
                log.info("no connection with node %d: %s; trying again", self.node_id, reason)
                self._failure_said = reason
        if lane is self._heartbeats or lane is self._requests:
            self._fail_waiting(reason)

    def on_refused(self, refusal: GreetingRefusal, *, by_peer: bool) -> None:
        self._network.refused_count += 1
        if refusal != self._refusal:
            log.warning("no connection with node %d at %s: %s", self.node_id, self.address, refusal.text)
        self._refusal, self._is_refused_by_peer = refusal, by_peer

    # ---- sending --------------------------------------------------------------------------------

    def send(self, group: GroupId, message: PeerMessage) -> None:
        self._lanes[kind_of(message)].send_message(group, message)

    def notify(self, notices: Sequence[LeaderNotice]) -> None:
        for start in range(0, len(notices), NOTICES_PER_FRAME_MAX):
            head = encode_notices(notices[start : start + NOTICES_PER_FRAME_MAX])
            self._heartbeats.send_frame(FrameType.NOTICES, head)

    async def request(self, kind: int, payload: Sequence[Buffer], timeout_s: float) -> bytes:
        is_sent = False
        try:
            async with asyncio.timeout(timeout_s):
                if not self._requests.is_ready:
                    await self._wait_ready()
                is_sent = True
                return await self._requests.request(kind, payload)
        except TimeoutError:
            reason = f"no answer within {timeout_s:g} s" if is_sent else f"no connection within {timeout_s:g} s"
            raise PeerUnavailable(self.node_id, reason, is_outcome_open=is_sent) from None

    async def _wait_ready(self) -> None:
        """Wait for an attempt in progress. Raises `PeerUnavailable` if the last attempt failed."""
        failure = self._requests.failure if self._heartbeats.is_ready else self._heartbeats.failure
        if failure is not None:
            raise PeerUnavailable(self.node_id, failure)
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def _fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_exception(PeerUnavailable(self.node_id, reason))
