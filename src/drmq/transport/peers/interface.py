"""The two sides of the peer network: what the broker gets to hear, and what it can ask for.

`PeerNetwork` is the network of sockets. A simulator has another, behind the same `Network`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from drmq.model import GroupId, NodeId
from drmq.transport.connection import Buffer
from drmq.transport.peers.messages import GreetingRefusal, Hello, LeaderNotice, PeerMessage, RefusalCode


class PeerClock(Protocol):
    """Where `last_heard_ms` gets its time from, so that its owner can compare."""

    def monotonic_ms(self) -> int: ...


class PeerHandler(Protocol):
    """What the network tells the broker, on the event loop. Any of these may call the network."""

    def on_peer_up(self, hello: Hello) -> None:
        """The heartbeat connections to and from that peer are there, and what is sent to it now finds a connection.
        Again after each time one of the two was made anew; another `boot_id` means another start of its process."""

    def on_peer_down(self, node_id: NodeId) -> None:
        """A peer that was up is not heard any more, or was forgotten."""

    def on_peer_heard(self, node_id: NodeId) -> None:
        """A node heartbeat arrived. Called ten times a second for each peer: must be cheap."""

    def on_group_message(self, peer: NodeId, group: GroupId, message: PeerMessage) -> None:
        """A message for a group; its sender is a member on `peer`. Payloads are views that may be kept.

        A `DrmqError` closes the connection that the message came on.
        """

    def on_notices(self, peer: NodeId, notices: Sequence[LeaderNotice]) -> None:
        """News of leaders."""

    def check_hello(self, hello: Hello) -> GreetingRefusal | None:
        """Why a peer that greets is not welcome, or None. Version, target and cluster id are checked already.

        Called at both ends of every connection, for a node that `set_peer` never named as well: one that joins
        is met here first, and can be dialled back at the address that its greeting gives.
        """

    async def on_request(self, peer: NodeId, kind: int, payload: memoryview) -> Sequence[Buffer]:
        """Serve a request. An `ApiError` is answered with its code, another `DrmqError` with its text.

        Cancelled when the connection ends, since nobody would read the answer.
        """


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """How the connections to a peer are, for people to look at."""

    host: str
    port: int
    is_up: bool
    buffered_bytes: int
    """What waits to be taken by the peer, over all connections."""
    dropped_messages: int
    """Messages that were not sent, because there was no connection or too much waited, since `set_peer`."""
    refusal: str | None
    """Why the peer does not want us, or we not it."""
    failure: str | None
    """Why there is no connection to it at the moment."""
    hello: Hello | None
    """How it introduced itself last."""
    last_heard_ms: int | None
    refusal_code: RefusalCode | None = None
    """The code of the refusal; None if it is this node that refuses."""


class Network(Protocol):
    """What the broker uses to reach its peers. Lives on one event loop."""

    def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        """Dial that node and keep dialling. The same again changes nothing; a new address is used at once."""

    def forget_peer(self, node_id: NodeId) -> None:
        """End all connections with that node. `on_peer_down` follows if it was up."""

    def send(self, node_id: NodeId, group: GroupId, message: PeerMessage) -> None:
        """Send it if there is a connection and room; else drop it. Payloads must not change afterwards."""

    def notify(self, node_id: NodeId, notices: Sequence[LeaderNotice]) -> None:
        """Send news of leaders, or drop them."""

    def flush(self) -> None:
        """Have all that was sent leave now, not only at the end of the loop's turn."""

    async def request(self, node_id: NodeId, kind: int, payload: Sequence[Buffer], timeout_s: float) -> bytes:
        """Ask and wait for the answer. Raises `PeerUnavailable` or `PeerRefused`."""

    def is_up(self, node_id: NodeId) -> bool: ...

    def hello_from(self, node_id: NodeId) -> Hello | None:
        """How a peer greeted on the heartbeat connection that it has opened to us, while that lives and is heard."""

    def last_heard_ms(self, node_id: NodeId) -> int | None:
        """When a peer was last heard, by the clock's monotonic time; None if never."""

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
