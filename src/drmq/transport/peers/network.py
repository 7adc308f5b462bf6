"""The peer network over sockets: the listener, the links, and the timer that drives both.

Always true:

- there is at most one accepted connection for each node and kind, the newest;
- only nodes that are configured or in the catalog have links, and only at the addresses from there (`set_peer`);
- `on_peer_up` and `on_peer_down` of one peer alternate, except that `on_peer_up` is repeated when a connection was
  renewed;
- after `close` the handler is not called any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec

from drmq.model import GroupId, NodeId
from drmq.transport.accepting import stop_accepting
from drmq.transport.connection import Buffer
from drmq.transport.peers.errors import PeerUnavailable
from drmq.transport.peers.hello import refusal_of
from drmq.transport.peers.inbound import Inbound
from drmq.transport.peers.interface import PeerClock, PeerHandler, PeerStatus, features_of, protocol_version_of
from drmq.transport.peers.link import Link
from drmq.transport.peers.messages import (
    ConnectionKind,
    GreetingRefusal,
    Hello,
    Identity,
    LeaderNotice,
    PeerMessage,
)
from drmq.transport.peers.options import PeerOptions
from drmq.transport.peers.strangers import CONNECTIONS_MAX, Strangers
from drmq.transport.peers.stream import Stream, Streams

log = logging.getLogger("drmq.transport.peers")

_BACKLOG = 256
_CLOSE_TIMEOUT_S = 1.0
_REFUSALS_MAX = 1_000

_Arguments = ParamSpec("_Arguments")


class PeerNetwork:
    """This node's connections with all others. Used on the event loop that opened it.

    `identity` returns this node's identity. When it changes, as it does for a node that joins a cluster, the
    connections are renewed, so that every peer receives it.
    """

    def __init__(
        self, identity: Callable[[], Identity], handler: PeerHandler, options: PeerOptions, clock: PeerClock
    ) -> None:
        self._ask_identity = identity
        self.identity = identity()
        self.handler = handler
        self.options = options
        self.streams = Streams(options)
        self.loop: asyncio.AbstractEventLoop
        self._clock = clock
        self._links: dict[NodeId, Link] = {}
        self._accepted: dict[Inbound, None] = {}
        self._inbound: dict[tuple[NodeId, ConnectionKind], Inbound] = {}
        self._refusals: dict[NodeId | None, str] = {}
        """The last logged refusal of each node, in order not to log it again."""
        self.refused_count = self.down_count = 0
        self._strangers = Strangers()
        self._ending: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_due = 0.0
        self._is_open = False

    # ---- lifecycle ------------------------------------------------------------------------------

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen for peers and dial those that are set. Returns the bound address, with the port chosen for 0."""
        loop = self.loop = asyncio.get_running_loop()
        self._is_open = True
        self._server = await loop.create_server(self._make_stream, host, port, backlog=_BACKLOG)
        bound = self._server.sockets[0].getsockname()
        self._schedule_tick(loop.time())
        # The port may be part of the identity, and is known only now.
        self.identity = self._ask_identity()
        for link in self._links.values():
            link.start()
        return str(bound[0]), int(bound[1])

    async def close(self) -> None:
        """Close all connections after sending what is buffered."""
        self._is_open = False
        if self._ticker is not None:
            self._ticker.cancel()
        for link in self._links.values():
            self._ending.update(link.stop("this node shuts down"))
        for stream in list(self.streams.open):
            stream.close("this node shuts down")
        if self._server is not None:
            await stop_accepting(self._server)
        # The streams are aborted after a while if their peers do not read.
        await self.streams.wait_closed(_CLOSE_TIMEOUT_S)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _make_stream(self) -> Stream:
        return Stream(Inbound(self), self.streams)

    def _schedule_tick(self, now: float) -> None:
        self._tick_due = now + self.options.heartbeat_interval_ms / 1_000
        self._ticker = self.loop.call_at(self._tick_due, self._tick)

    def _tick(self) -> None:
        now = self.loop.time()
        late_s = now - self._tick_due
        self._schedule_tick(now)
        identity = self._ask_identity()
        if identity != self.identity:
            self.identity = identity
            for link in self._links.values():
                link.greet_again()
            for inbound in self._accepted:
                if inbound.hello is not None and not inbound.is_peer:
                    # It may wait for this node to belong to a cluster. It dials again, and gets another answer.
                    inbound.stream.close("the identity of this node has changed")
        # A list, because the handler may set and forget peers during the iteration.
        everyone: list[Link | Inbound] = [*self._links.values(), *self._accepted]
        if late_s * 1_000 > self.options.heartbeat_interval_ms:
            # Frames that arrived while this process did not run may not have been read yet.
            for each in [*everyone, *self.streams.open]:
                each.forgive(late_s, now)
        for link_or_inbound in everyone:
            link_or_inbound.tick(now)

    @property
    def invalid_count(self) -> int:
        return self.streams.invalid_count

    @property
    def is_cut(self) -> bool:
        return self.streams.is_cut

    def set_cut(self, is_cut: bool) -> None:
        """Lose everything that is sent to peers and received from them, or end that. For experiments only.

        A peer notices nothing but silence. At the end all connections are renewed: parts of frames are missing in them.
        """
        self.streams.is_cut = is_cut
        if not is_cut:
            for stream in list(self.streams.open):
                stream.abort("the cut of the network has ended")

    # ---- peers ----------------------------------------------------------------------------------

    def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        assert node_id != self.identity.node_id, f"node {node_id} is this node itself"
        link = self._links.get(node_id)
        if link is None:
            link = self._links[node_id] = Link(self, node_id, host, port)
            for kind in ConnectionKind:
                inbound = self._inbound.get((node_id, kind))
                if inbound is not None:
                    inbound.on_known()
            if self._is_open:
                link.start()
        elif (link.host, link.port) != (host, port):
            self._end_later(link.move(host, port))

    def forget_peer(self, node_id: NodeId) -> None:
        link = self._links.pop(node_id, None)
        if link is None:
            return
        self._end_later(link.stop("the peer was forgotten"))
        link.become_down("it was forgotten")
        self.abort_inbound(node_id, "the peer was forgotten")

    def _end_later(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Keep cancelled tasks until they have ended."""
        for task in tasks:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def is_peer(self, node_id: NodeId) -> bool:
        return node_id in self._links

    def is_up(self, node_id: NodeId) -> bool:
        link = self._links.get(node_id)
        return link is not None and link.is_up

    def last_heard_ms(self, node_id: NodeId) -> int | None:
        link = self._links.get(node_id)
        return None if link is None else link.last_heard_ms

    def silence_limit_ms(self, node_id: NodeId) -> float:
        """How long a peer may be silent until its connections are broken."""
        link = self._links.get(node_id)
        return self.options.peer_timeout_ms if link is None else link.silence_limit_s * 1_000

    def protocol_version(self, node_id: NodeId) -> int:
        return protocol_version_of(self._last_hello(node_id))

    def features_of(self, node_id: NodeId) -> Mapping[str, tuple[int, int]]:
        return features_of(self._last_hello(node_id))

    def _last_hello(self, node_id: NodeId) -> Hello | None:
        link = self._links.get(node_id)
        return None if link is None else link.hello

    @property
    def peers(self) -> Mapping[NodeId, PeerStatus]:
        return {node_id: link.status for node_id, link in self._links.items()}

    # ---- sending --------------------------------------------------------------------------------

    def send(self, node_id: NodeId, group: GroupId, message: PeerMessage) -> None:
        link = self._links.get(node_id)
        if link is not None:
            link.send(group, message)

    def flush(self) -> None:
        for stream in list(self.streams.unflushed):
            stream.flush()

    def notify(self, node_id: NodeId, notices: Sequence[LeaderNotice]) -> None:
        link = self._links.get(node_id)
        if link is not None:
            link.notify(notices)

    async def request(self, node_id: NodeId, kind: int, payload: Sequence[Buffer], timeout_s: float) -> bytes:
        link = self._links.get(node_id)
        if link is None or not self._is_open:
            raise PeerUnavailable(node_id, "its address is not known" if link is None else "this node shuts down")
        return await link.request(kind, payload, timeout_s)

    # ---- called by links and accepted connections -----------------------------------------------

    def notify_handler(
        self, function: Callable[_Arguments, None], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> None:
        """Call the handler. A bug there must not end the tasks that maintain the connections."""
        if not self._is_open:
            return
        try:
            function(*args, **kwargs)
        except Exception:  # logged, and the network continues
            log.exception("%s failed because of a bug", getattr(function, "__name__", "a handler"))

    def check_hello(self, hello: Hello, expected: NodeId | None = None) -> GreetingRefusal | None:
        """Why a greeting is refused, or None."""
        return refusal_of(hello, self.identity, expected) or self.handler.check_hello(hello)

    def hello_from(self, node_id: NodeId) -> Hello | None:
        """The greeting of a peer on the heartbeat connection that it has opened, while that is open."""
        inbound = self._inbound.get((node_id, ConnectionKind.HEARTBEAT))
        is_open = inbound is not None and not inbound.stream.is_closed and node_id in self._links
        return inbound.hello if inbound is not None and is_open else None

    def on_hello(self, hello: Hello) -> None:
        """Called when a greeting was accepted, on a connection that either side opened.

        Connections from an earlier start of the peer's process are closed.
        """
        for kind in ConnectionKind:
            inbound = self._inbound.get((hello.node_id, kind))
            if inbound is not None and inbound.hello is not None and inbound.hello.boot_id != hello.boot_id:
                inbound.stream.abort("the peer's process has restarted")
        link = self._links.get(hello.node_id)
        if link is not None:
            link.on_hello(hello, self.loop.time(), self._clock.monotonic_ms())

    def on_accepted(self, inbound: Inbound) -> None:
        if not self._is_open:
            inbound.stream.abort("this node shuts down")
        elif len(self._accepted) >= self.options.connections_max and not self._close_an_unknown():
            repeat = {"repeat_key": "too many peer connections"}
            log.warning("%d peers are connected, which is the limit", len(self._accepted), extra=repeat)
            inbound.stream.abort("too many connections")
        else:
            self._accepted[inbound] = None

    def _close_an_unknown(self) -> bool:
        """Make room for a connection: close the oldest one that no peer has opened. False if there is none."""
        oldest = next((each for each in self._accepted if not each.is_peer), None)
        if oldest is None:
            return False
        del self._accepted[oldest]
        oldest.stream.abort("too many connections")
        return True

    def may_answer(self, node_id: NodeId | None, stream: Stream) -> bool:
        """Whether the greeting of a node is answered. If not, its connection is closed."""
        if node_id is not None and node_id in self._links:
            return True
        unknown = sum(1 for each in self._accepted if each.hello is not None and not each.is_peer)
        host = stream.address.rpartition(":")[0]
        if unknown < CONNECTIONS_MAX and self._strangers.may_answer(host, self.loop.time()):
            return True
        self.refused_count += 1
        repeat = {"repeat_key": "unknown nodes"}
        log.warning("too many greetings of unknown nodes; one from %s is not answered", stream.address, extra=repeat)
        stream.abort("too many greetings of unknown nodes")
        return False

    def on_greeted(self, inbound: Inbound, hello: Hello) -> float:
        """Register an accepted connection; an older one of the same kind is closed. Returns the current time."""
        key = hello.node_id, hello.kind
        older = self._inbound.get(key)
        if older is not None:
            older.stream.abort("the peer has opened a newer connection")
        self._inbound[key] = inbound
        self._refusals.pop(hello.node_id, None)
        self.on_hello(hello)
        return self.loop.time()

    def on_inbound_lost(self, inbound: Inbound) -> None:
        self._accepted.pop(inbound, None)
        if inbound.hello is not None:
            key = inbound.hello.node_id, inbound.hello.kind
            if self._inbound.get(key) is inbound:
                del self._inbound[key]

    def abort_inbound(self, node_id: NodeId, reason: str) -> None:
        """Abort the connections that a peer has opened."""
        for kind in ConnectionKind:
            inbound = self._inbound.get((node_id, kind))
            if inbound is not None:
                inbound.stream.abort(reason)

    def on_heard(self, node_id: NodeId) -> float:
        """Called for each frame on a peer's heartbeat connection. Returns the current time."""
        now = self.loop.time()
        link = self._links.get(node_id)
        if link is not None:
            link.on_heard(now, self._clock.monotonic_ms())
        return now

    def on_refusal(self, node_id: NodeId | None, address: str, refusal: str) -> None:
        """Log once that a node which has dialled us is refused, or refuses us, and again if the reason changes.

        The address is not compared, because it has a different port at each attempt.
        """
        self.refused_count += 1
        if self._refusals.get(node_id) == refusal:
            return
        if len(self._refusals) >= _REFUSALS_MAX:
            self._refusals.clear()
        self._refusals[node_id] = refusal
        who = "a node" if node_id is None else f"node {node_id}"
        # One key for all unknown nodes: each may greet with a new id every time.
        key = f"refused {who}" if node_id in self._links else "refused an unknown node"
        log.warning("%s dialled from %s: %s", who, address, refusal, extra={"repeat_key": key})
