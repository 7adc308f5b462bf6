"""The two sides of the peer network: how it notifies the broker, and how the broker uses it.

`PeerNetwork` implements it with sockets. The simulator has another implementation of `Network`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from drmq.model import GroupId, NodeId
from drmq.transport.connection import Buffer
from drmq.transport.peers.messages import GreetingRefusal, Hello, LeaderNotice, PeerMessage, RefusalCode


class PeerClock(Protocol):
    """The clock for `last_heard_ms`, so that the broker can compare it with its own times."""

    def monotonic_ms(self) -> int: ...


class PeerHandler(Protocol):
    """The callbacks of the network, called on the event loop. Any of them may call the network."""

    def on_peer_up(self, hello: Hello) -> None:
        """The heartbeat connections with that peer are open in both directions, and messages can be sent to it.

        Called again whenever one of the two was renewed. A different `boot_id` means that its process has restarted.
        """

    def on_peer_down(self, node_id: NodeId) -> None:
        """Nothing is received any more from a peer that was up, or the peer was forgotten."""

    def on_peer_heard(self, node_id: NodeId) -> None:
        """A node heartbeat arrived. Called ten times a second for each peer: must be cheap."""

    def on_group_message(self, peer: NodeId, group: GroupId, message: PeerMessage) -> None:
        """A message for a group; its sender is a member on `peer`. Payloads are views that may be kept.

        A `DrmqError` closes the connection that the message came on.
        """

    def on_notices(self, peer: NodeId, notices: Sequence[LeaderNotice]) -> None:
        """Leader notices have arrived."""

    def check_hello(self, hello: Hello) -> GreetingRefusal | None:
        """Why a peer's greeting is refused, or None. Version, target and cluster id have already been checked.

        Called at both ends of every connection, also for nodes that were not added by `set_peer`. The address in a
        greeting must not be dialled: any process can greet.
        """

    async def on_request(self, peer: NodeId, kind: int, payload: memoryview) -> Sequence[Buffer]:
        """Serve a request. An `ApiError` is answered with its code, another `DrmqError` with its text.

        Also called for nodes that are no peers (`Network.is_peer`): they may only register.
        Cancelled when the connection ends, since the answer could not be sent.
        """


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """The state of the connections to a peer, for display."""

    host: str
    port: int
    is_up: bool
    buffered_bytes: int
    """Bytes that wait to be sent to the peer, over all connections."""
    dropped_messages: int
    """Messages that were not sent, because there was no connection or too much waited, since `set_peer`."""
    refusal: str | None
    """Why the peer refuses this node, or this node refuses the peer."""
    failure: str | None
    """Why there is no connection to it now."""
    hello: Hello | None
    """Its last greeting."""
    last_heard_ms: int | None
    refusal_code: RefusalCode | None = None
    """The code of the refusal; None if it is this node that refuses."""
    is_connected: bool = False
    """Whether it has answered our greeting, so that requests can be sent. It is up once it has also connected to us."""


class Network(Protocol):
    """The network to the peers, as the broker uses it. Used on one event loop."""

    down_count: int
    """How often a peer was considered down, since the start."""
    refused_count: int
    """How often a peer was refused, or refused this node, since the start, whichever of them had dialled."""

    @property
    def invalid_count(self) -> int:
        """How often a connection was closed because of an invalid frame, since the start."""

    def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        """Dial that node and keep dialling. Repeating it changes nothing; a new address is used at once."""

    def forget_peer(self, node_id: NodeId) -> None:
        """Close all connections with that node. `on_peer_down` follows if it was up."""

    def send(self, node_id: NodeId, group: GroupId, message: PeerMessage) -> None:
        """Send a message if there is a connection with room, else drop it. Payloads must not change afterwards."""

    def notify(self, node_id: NodeId, notices: Sequence[LeaderNotice]) -> None:
        """Send leader notices, or drop them."""

    def flush(self) -> None:
        """Write all messages now, instead of at the end of the loop's turn."""

    async def request(self, node_id: NodeId, kind: int, payload: Sequence[Buffer], timeout_s: float) -> bytes:
        """Send a request and wait for its answer. Raises `PeerUnavailable` or `PeerRefused`."""

    def is_peer(self, node_id: NodeId) -> bool:
        """Whether the node was added by `set_peer`. Only peers may send anything but a registration."""

    def is_up(self, node_id: NodeId) -> bool: ...

    def hello_from(self, node_id: NodeId) -> Hello | None:
        """The greeting of a peer on the heartbeat connection that it has opened, while heartbeats arrive on it."""

    def last_heard_ms(self, node_id: NodeId) -> int | None:
        """When something was last received from a peer, by the clock's monotonic time; None if never."""

    def protocol_version(self, node_id: NodeId) -> int:
        """The newest protocol version that both nodes speak, by that node's last greeting; 1 if it has not greeted.

        It decides what may be sent to that node.
        """

    def features_of(self, node_id: NodeId) -> Mapping[str, tuple[int, int]]:
        """The lowest and the highest supported level of each feature, by that node's last greeting.

        Empty for a node of protocol version 1, which does not send them.
        """

    @property
    def peers(self) -> Mapping[NodeId, PeerStatus]: ...


def protocol_version_of(hello: Hello | None) -> int:
    """The protocol version to use with a node, by its greeting."""
    return 1 if hello is None else hello.protocol_version


def features_of(hello: Hello | None) -> Mapping[str, tuple[int, int]]:
    """The features of a node, by its greeting."""
    return {} if hello is None else {each.name: (each.level_min, each.level_max) for each in hello.features}
