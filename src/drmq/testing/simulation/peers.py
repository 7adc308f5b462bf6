"""The network between nodes as the broker sees it: `transport.peers.Network` on the simulated links.

Everything is encoded and decoded by the real codec. Sockets are deliberately left out: every message travels by itself,
so it may be lost, duplicated or overtaken, which is harsher than any connection. The guarantees of connections are
kept: nodes exchange greetings and know which process run of a peer they communicate with, and a message for one process
run never reaches the next one. Heartbeats determine which peers are up; a peer is up only if both directions work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from drmq.model import ApiError, DrmqError, ErrorCode, GroupId, NodeId
from drmq.testing.simulation.links import Links
from drmq.testing.simulation.loop import SimulatedLoop
from drmq.testing.simulation.world import World
from drmq.transport.connection import Buffer
from drmq.transport.peers import (
    ConnectionKind,
    GreetingRefusal,
    Hello,
    Identity,
    LeaderNotice,
    PeerHandler,
    PeerMessage,
    PeerOptions,
    PeerRefused,
    PeerStatus,
    PeerUnavailable,
)
from drmq.transport.peers.codec import (
    Answer,
    Request,
    decode_answer,
    decode_messages,
    decode_notices,
    decode_request,
    encode_answer,
    encode_message,
    encode_notices,
    encode_request,
)
from drmq.transport.peers.hello import answer_to, decode_hello, encode_hello, encode_offer, refusal_of
from drmq.transport.peers.interface import features_of, protocol_version_of
from drmq.transport.peers.silence import Silence

_NOBODY = bytes(16)


class Switchboard:
    """The peers' side of all running processes, by node id."""

    def __init__(self, world: World, links: Links) -> None:
        self.world = world
        self.links = links
        self.up: dict[NodeId, SimulatedPeers] = {}
        self.watch: Callable[[NodeId, GroupId, PeerMessage], None] = lambda node_id, group, message: None
        """Called with every message as it leaves, whether it arrives or not."""


@dataclass(slots=True)
class _Peer:
    """What one process knows of another node."""

    host: str
    port: int
    silence: Silence
    hello: Hello | None = None
    """Its last accepted greeting."""
    heard_ms: int | None = None
    hears_us: bool = False
    is_up: bool = False
    up_is_due: bool = True
    """A new process run of the peer has sent a greeting, but has not confirmed yet that it receives ours."""
    past: set[bytes] = field(default_factory=set)
    """Boot ids of earlier process runs. Their connections break when the next run sends a greeting."""
    refusal: GreetingRefusal | None = None
    requests: dict[int, asyncio.Future[bytes]] = field(default_factory=dict)


class SimulatedPeers:
    """The network of one process. Implements `transport.peers.Network`."""

    def __init__(
        self,
        board: Switchboard,
        loop: SimulatedLoop,
        identity: Callable[[], Identity],
        handler: PeerHandler,
        options: PeerOptions,
        now_ms: Callable[[], int],
        is_off: Callable[[], bool],
    ) -> None:
        self._board = board
        self._loop = loop
        self._identity = identity
        self._handler = handler
        self._now_ms = now_ms
        self._is_off = is_off
        self._options = options
        self._peers: dict[NodeId, _Peer] = {}
        self._strangers: dict[NodeId, Hello] = {}
        """Greetings of nodes that are not configured as peers yet. They are answered, so that these nodes can join."""
        self.down_count = self.refused_count = self.invalid_count = 0
        self._request_count = 0
        self._serving: dict[asyncio.Task[None], None] = {}
        self._is_open = True
        self.node_id = identity().node_id
        board.up[self.node_id] = self
        self._tick_due = loop.time() + self._interval_s
        self._ticker = loop.call_at(self._tick_due, self._tick)

    @property
    def _interval_s(self) -> float:
        return self._options.heartbeat_interval_ms / 1_000

    def close(self) -> None:
        self._is_open = False
        self._ticker.cancel()
        if self._board.up.get(self.node_id) is self:
            del self._board.up[self.node_id]
        for task in list(self._serving):
            task.cancel()
        for peer in self._peers.values():
            self._fail_requests(peer, "this node shuts down")

    # ---- Network --------------------------------------------------------------------------------

    def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        assert node_id != self.node_id, f"node {node_id} is this node itself"
        peer = self._peers.get(node_id)
        if peer is None:
            peer = self._peers[node_id] = _Peer(host, port, Silence(self._options.peer_timeout_ms / 1_000))
            known = self._strangers.pop(node_id, None)
            self._greet(node_id, peer, known)
        else:
            peer.host, peer.port = host, port

    def forget_peer(self, node_id: NodeId) -> None:
        peer = self._peers.pop(node_id, None)
        if peer is not None and peer.is_up:
            self._fail_requests(peer, "the peer was forgotten")
            self._handler.on_peer_down(node_id)

    def send(self, node_id: NodeId, group: GroupId, message: PeerMessage) -> None:
        self._board.watch(node_id, group, message)
        peer = self._peers.get(node_id)
        if peer is None or peer.hello is None:
            return
        head, payload = encode_message(group, message)
        body = payload[0] if len(payload) == 1 else b"".join(payload)
        name, own_boot = type(message).__name__, self._identity().boot_id
        self._carry(
            node_id, peer.hello.boot_id, name, lambda other: other._on_message(self.node_id, own_boot, head, body)
        )

    def flush(self) -> None:
        return

    def notify(self, node_id: NodeId, notices: Sequence[LeaderNotice]) -> None:
        peer = self._peers.get(node_id)
        if peer is None or peer.hello is None:
            return
        data = encode_notices(notices)
        self._carry(node_id, peer.hello.boot_id, "notices", lambda other: other._on_notices(self.node_id, data))

    async def request(self, node_id: NodeId, kind: int, payload: Sequence[Buffer], timeout_s: float) -> bytes:
        peer = self._peers.get(node_id)
        if peer is None or peer.hello is None or not self._answers(peer):
            raise PeerUnavailable(node_id, "there is no connection")
        self._request_count += 1
        number = self._request_count
        head, body, own_boot = encode_request(Request(number, kind)), b"".join(payload), self._identity().boot_id
        future: asyncio.Future[bytes] = self._loop.create_future()
        peer.requests[number] = future
        self._carry(
            node_id,
            peer.hello.boot_id,
            "request",
            lambda other: other._on_request(self.node_id, own_boot, head, body),
            once=True,
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise PeerUnavailable(node_id, f"no answer within {timeout_s:g} s", is_outcome_open=True) from None
        finally:
            peer.requests.pop(number, None)

    def is_peer(self, node_id: NodeId) -> bool:
        return node_id in self._peers

    def is_up(self, node_id: NodeId) -> bool:
        peer = self._peers.get(node_id)
        return peer is not None and peer.is_up

    def hello_from(self, node_id: NodeId) -> Hello | None:
        """Always None: here a node is one process at a time, so no other process can conflict with a greeting."""
        return None

    def last_heard_ms(self, node_id: NodeId) -> int | None:
        peer = self._peers.get(node_id)
        return None if peer is None else peer.heard_ms

    @property
    def peers(self) -> Mapping[NodeId, PeerStatus]:
        return {
            node_id: PeerStatus(
                peer.host,
                peer.port,
                peer.is_up,
                0,
                0,
                None if peer.refusal is None else peer.refusal.text,
                None,
                peer.hello,
                peer.heard_ms,
                is_connected=self._answers(peer),
            )
            for node_id, peer in self._peers.items()
        }

    def protocol_version(self, node_id: NodeId) -> int:
        peer = self._peers.get(node_id)
        return protocol_version_of(None if peer is None else peer.hello)

    def features_of(self, node_id: NodeId) -> Mapping[str, tuple[int, int]]:
        peer = self._peers.get(node_id)
        return features_of(None if peer is None else peer.hello)

    def _answers(self, peer: _Peer) -> bool:
        """Whether the peer answers this node, which does not mean that it has this node as its peer too."""
        return peer.hello is not None and (peer.is_up or not peer.silence.is_too_long(self._loop.time()))

    # ---- heartbeats -----------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self._loop.time()
        late_s = now - self._tick_due
        self._tick_due = now + self._interval_s
        self._ticker = self._loop.call_at(self._tick_due, self._tick)
        for node_id, peer in list(self._peers.items()):
            if late_s > self._interval_s:
                peer.silence.forgive(late_s, now)
            if peer.is_up and peer.silence.is_too_long(now):
                self._become_down(node_id, peer)
            self._greet(node_id, peer, None)

    def _greet(self, node_id: NodeId, peer: _Peer, stranger: Hello | None) -> None:
        own = Hello.of(self._identity(), ConnectionKind.HEARTBEAT, node_id)
        hello = encode_hello(own), encode_offer(own)
        known = peer.hello or stranger
        silent = peer.silence.is_too_long(self._loop.time())
        heard = _NOBODY if known is None or (silent and stranger is None) else known.boot_id
        self._carry(node_id, None, "heartbeat", lambda other: self._meet(other, hello, heard))

    def _meet(self, other: SimulatedPeers, hello: tuple[bytes, bytes], heard: bytes) -> None:
        """Connections end with their process: an old process must not send a greeting after the next one has."""
        if self._board.up.get(self.node_id) is self:
            other._on_heartbeat(hello, heard)

    def _on_heartbeat(self, greeting: tuple[bytes, bytes], heard: bytes) -> None:
        hello = decode_hello(memoryview(greeting[0]), greeting[1])
        own = self._identity()
        node_id = hello.node_id
        peer = self._peers.get(node_id)
        if peer is not None and hello.boot_id in peer.past:
            return
        refusal = refusal_of(hello, own) or self._handler.check_hello(hello)
        if refusal is not None:
            self.refused_count += 1
            if peer is not None:
                peer.refusal = refusal
                peer.hello = None
                if peer.is_up:
                    self._become_down(node_id, peer)
            return
        if peer is None:
            self._strangers[node_id] = hello
            # It is answered, so that it can register. It is not up for this node, nor this node for it.
            answered = answer_to(hello, own)
            answer = encode_hello(answered), encode_offer(answered)
            self._carry(node_id, None, "heartbeat", lambda other: self._meet(other, answer, _NOBODY))
            return
        peer.refusal = None
        before, peer.hello = peer.hello, hello
        hears_us = heard == own.boot_id
        is_new = before is None or before.boot_id != hello.boot_id
        if is_new:
            peer.silence.on_started(self._loop.time())
        peer.silence.on_heard(self._loop.time())
        peer.heard_ms = self._now_ms()
        if is_new and before is not None:
            peer.past.add(before.boot_id)
            self._fail_requests(peer, "the peer's process has restarted")
        if is_new or (before is not None and before.cluster_id != hello.cluster_id):
            peer.up_is_due = True
        if hears_us and (not peer.is_up or peer.up_is_due):
            peer.is_up, peer.up_is_due = True, False
            self._handler.on_peer_up(hello)
        if peer.is_up:
            self._handler.on_peer_heard(node_id)

    def _become_down(self, node_id: NodeId, peer: _Peer) -> None:
        peer.is_up = False
        self.down_count += 1
        self._fail_requests(peer, "the peer is down")
        self._handler.on_peer_down(node_id)

    def _fail_requests(self, peer: _Peer, reason: str) -> None:
        for future in peer.requests.values():
            if not future.done():
                future.set_exception(PeerUnavailable(self.node_id, reason, is_outcome_open=True))

    # ---- carrying -------------------------------------------------------------------------------

    def _carry(
        self,
        node_id: NodeId,
        boot_id: bytes | None,
        name: str,
        meet: Callable[[SimulatedPeers], None],
        *,
        once: bool = False,
    ) -> None:
        """Call `meet` on the other process's loop, if it is still the intended process when the message arrives."""
        if self._is_off() or not self._is_open:
            return
        board = self._board

        def arrive() -> None:
            other = board.up.get(node_id)
            if other is None or (boot_id is not None and other._identity().boot_id != boot_id):
                return
            other._loop.call_soon(other._receive, meet)

        self._loop.charge()
        if self._loop.busy_us:
            # It is sent in the middle of a turn that takes a while.
            board.world.later(
                self._loop.busy_us,
                "sent",
                lambda: board.links.carry(self.node_id, node_id, name, arrive, once=once),
            )
        else:
            board.links.carry(self.node_id, node_id, name, arrive, once=once)

    def _receive(self, meet: Callable[[SimulatedPeers], None]) -> None:
        if self._is_open:
            self._loop.charge()
            meet(self)

    def _on_message(self, sender: NodeId, boot_id: bytes, head: bytes, payload: Buffer) -> None:
        peer = self._peers.get(sender)
        if peer is None or peer.refusal is not None or boot_id in peer.past:
            return
        for group, message in decode_messages(memoryview(head), memoryview(payload)):
            self._handler.on_group_message(sender, group, message)

    def _on_notices(self, sender: NodeId, data: bytes) -> None:
        if sender in self._peers:
            self._handler.on_notices(sender, decode_notices(memoryview(data), memoryview(b"")))

    def _on_request(self, sender: NodeId, boot_id: bytes, head: bytes, payload: bytes) -> None:
        request = decode_request(memoryview(head))
        task = self._loop.create_task(self._serve(sender, boot_id, request, memoryview(payload)))
        self._serving[task] = None
        task.add_done_callback(self._serving.pop)

    async def _serve(self, sender: NodeId, boot_id: bytes, request: Request, payload: memoryview) -> None:
        try:
            body = b"".join(await self._handler.on_request(sender, request.kind, payload))
            answer = Answer(request.number, True)
        except ApiError as error:
            body, answer = b"", Answer(request.number, False, error.code, error.message)
        except DrmqError as error:
            body, answer = b"", Answer(request.number, False, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        head = encode_answer(answer)
        self._carry(sender, boot_id, "answer", lambda other: other._on_answer(self.node_id, head, body), once=True)

    def _on_answer(self, sender: NodeId, head: bytes, payload: bytes) -> None:
        answer = decode_answer(memoryview(head))
        peer = self._peers.get(sender)
        future = None if peer is None else peer.requests.get(answer.number)
        if future is None or future.done():
            return
        if answer.is_served:
            future.set_result(payload)
        else:
            future.set_exception(PeerRefused(sender, answer.code, answer.text))
