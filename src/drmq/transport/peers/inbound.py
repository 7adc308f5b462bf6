"""A connection that a peer has opened: its greeting, then the frames that its kind allows.

Until the greeting is accepted, only a small frame is allowed, and only for a short time. Afterwards the peer's node id
is known, and a message with a sender on another node closes the connection as invalid.

A node to which this one has no link is unknown: neither configured nor in the catalog. Its greeting is answered, not
too often (`strangers`), and it may send small requests for a short time: it may be about to register. Its messages are
dropped. It becomes a peer when it is in the catalog (`on_known`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from drmq.model import ApiError, DrmqError, ErrorCode, NodeId, node_of
from drmq.transport.peers.codec import (
    Answer,
    Request,
    decode_messages,
    decode_notices,
    decode_request,
    encode_answer,
)
from drmq.transport.peers.frames import Frame, FrameType
from drmq.transport.peers.hello import (
    UnknownVersion,
    answer_to,
    decode_hello,
    decode_refusal,
    encode_hello,
    encode_offer,
    encode_refusal,
)
from drmq.transport.peers.messages import ConnectionKind, GreetingRefusal, Hello, RefusalCode
from drmq.transport.peers.silence import CEILING
from drmq.transport.peers.strangers import CONNECTED_S
from drmq.transport.peers.stream import Stream
from drmq.wire import ProtocolError

if TYPE_CHECKING:
    from drmq.transport.peers.network import PeerNetwork

log = logging.getLogger("drmq.transport.peers")

_ALLOWED = {
    ConnectionKind.HEARTBEAT: frozenset({FrameType.NODE_HEARTBEAT, FrameType.MESSAGES, FrameType.NOTICES}),
    ConnectionKind.APPEND: frozenset({FrameType.MESSAGES}),
    ConnectionKind.SNAPSHOT: frozenset({FrameType.MESSAGES}),
    ConnectionKind.REQUEST: frozenset({FrameType.REQUEST}),
}


class Inbound:
    """The owner of one accepted connection. Belongs to the network, which keeps one per peer and kind."""

    def __init__(self, network: PeerNetwork) -> None:
        self._network = network
        self.stream: Stream
        self.hello: Hello | None = None
        """The peer's greeting; None until it is accepted."""
        self._peer = NodeId(-1)
        self._opened_at = self._heard_at = network.loop.time()
        self._serving: set[asyncio.Task[None]] = set()

    # ---- lifecycle ------------------------------------------------------------------------------

    def on_connected(self, stream: Stream) -> None:
        self.stream = stream
        self._network.on_accepted(self)

    def on_lost(self, stream: Stream, reason: str) -> None:
        for task in self._serving:
            task.cancel()
        self._network.on_inbound_lost(self)

    def tick(self, now: float) -> None:
        """Close the connection if the peer sends no greeting, makes no progress, or has stopped its heartbeats."""
        options = self._network.options
        silent_ms = (now - self._heard_at) * 1_000
        if self.hello is None:
            # A peer that is short of processor time takes several turns of its loop until it greets.
            if silent_ms > CEILING * options.dial_timeout_ms:
                self.stream.abort("no greeting was received in time")
        elif self.hello.kind is ConnectionKind.HEARTBEAT and silent_ms > self._network.silence_limit_ms(self._peer):
            self.stream.abort("no heartbeat was received in time")
        elif now - self._opened_at > CONNECTED_S and not self.is_peer:
            self.stream.close("the node is unknown, and has had enough time to register")
        self.stream.end_if_stalled(now)

    def forgive(self, late_s: float, now: float) -> None:
        """Do not count `late_s` against the peer: this process did not run then, so it could not receive anything."""
        self._heard_at = min(self._heard_at + late_s, now)

    @property
    def is_peer(self) -> bool:
        """Whether it has greeted as a node that is configured or in the catalog."""
        return self.hello is not None and self._network.is_peer(self._peer)

    def on_known(self) -> None:
        """The node that opened this connection has become a peer."""
        if self.hello is not None and not self.stream.is_closed:
            self.stream.accept(self.hello.kind)

    # ---- frames ---------------------------------------------------------------------------------

    def on_frame(self, stream: Stream, frame: Frame) -> None:
        if self.hello is None:
            self._on_greeting(stream, frame)
            return
        kind = self.hello.kind
        if frame.type == FrameType.REFUSAL:
            refusal = decode_refusal(frame)
            self._network.on_refusal(self._peer, stream.address, f"the peer refuses: {refusal.text}")
            stream.close("refused by the peer")
            return
        if frame.type not in _ALLOWED[kind]:
            raise ProtocolError(f"received a frame of type {frame.type} on a connection for {kind.name}")
        if kind is ConnectionKind.HEARTBEAT:
            self._heard_at = self._network.on_heard(self._peer)
        if frame.type != FrameType.REQUEST and not self._network.is_peer(self._peer):
            return
        match frame.type:
            case FrameType.MESSAGES:
                self._on_messages(stream, frame)
            case FrameType.NODE_HEARTBEAT:
                self._network.handler.on_peer_heard(self._peer)
            case FrameType.NOTICES:
                self._network.handler.on_notices(self._peer, decode_notices(frame.head, frame.payload))
            case FrameType.REQUEST:
                self._on_request(decode_request(frame.head), frame.payload)

    def _on_greeting(self, stream: Stream, frame: Frame) -> None:
        if frame.type != FrameType.HELLO:
            raise ProtocolError(f"received a frame of type {frame.type} instead of a greeting")
        try:
            hello = decode_hello(frame.head, frame.payload)
        except UnknownVersion as error:
            if self._network.may_answer(None, stream):
                self._refuse(stream, None, GreetingRefusal(RefusalCode.VERSION, str(error)))
            return
        if not self._network.may_answer(hello.node_id, stream):
            return
        refusal = self._network.check_hello(hello)
        if refusal is not None:
            self._refuse(stream, hello.node_id, refusal)
            return
        own = answer_to(hello, self._network.identity)
        stream.send_frame(FrameType.HELLO, encode_hello(own), (encode_offer(own),))
        stream.accept(hello.kind, is_small=not self._network.is_peer(hello.node_id))
        self.hello = hello
        self._peer = hello.node_id
        self._heard_at = self._network.on_greeted(self, hello)

    def _refuse(self, stream: Stream, node_id: NodeId | None, refusal: GreetingRefusal) -> None:
        stream.send_frame(FrameType.REFUSAL, *encode_refusal(refusal))
        self._network.on_refusal(node_id, stream.address, f"this node refuses: {refusal.text}")
        stream.close("refused")

    def _on_messages(self, stream: Stream, frame: Frame) -> None:
        peer, on_group_message = self._peer, self._network.handler.on_group_message
        for group, message in decode_messages(frame.head, frame.payload):
            if node_of(message.sender) != peer:
                raise ProtocolError(
                    f"node {peer} sent a message with the sender {message.sender}, which is on another node"
                )
            on_group_message(peer, group, message)
            if stream.is_closed:
                # While it handled the message, the broker closed the connections with this peer.
                return

    # ---- requests -------------------------------------------------------------------------------

    def _on_request(self, request: Request, payload: memoryview) -> None:
        count_max = self._network.options.requests_in_flight_max
        if len(self._serving) >= count_max:
            text = f"{count_max} requests of node {self._peer} are being served, which is the limit; ask again later"
            self._answer(Answer(request.number, False, ErrorCode.THROTTLING_QUOTA_EXCEEDED, text))
            return
        task = self._network.loop.create_task(self._serve(request, payload))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, request: Request, payload: memoryview) -> None:
        number = request.number
        try:
            buffers = await self._network.handler.on_request(self._peer, request.kind, payload)
        except ApiError as error:
            self._answer(Answer(number, False, error.code, error.message))
        except DrmqError as error:
            self._answer(Answer(number, False, ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        except Exception:  # the sender must not wait for an answer that never comes because of a bug
            log.exception("a request of kind %d from node %d failed because of a bug", request.kind, self._peer)
            text = f"a request of kind {request.kind} failed because of a bug; the log of that node has the details"
            self._answer(Answer(number, False, ErrorCode.UNKNOWN_SERVER_ERROR, text))
        else:
            if not self.stream.is_closed and not self.stream.send_frame(
                FrameType.ANSWER, encode_answer(Answer(number, True)), buffers
            ):
                text = f"the answer has {sum(map(len, buffers))} bytes, which is more than a frame can have"
                self._answer(Answer(number, False, ErrorCode.MESSAGE_TOO_LARGE, text))

    def _answer(self, answer: Answer) -> None:
        if not self.stream.is_closed:
            self.stream.send_frame(FrameType.ANSWER, encode_answer(answer))
