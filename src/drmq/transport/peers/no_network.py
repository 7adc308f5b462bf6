"""The network of a node that has no peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drmq.model import GroupId, NodeId
from drmq.transport.connection import Buffer
from drmq.transport.peers.errors import PeerUnavailable
from drmq.transport.peers.interface import PeerStatus
from drmq.transport.peers.messages import Hello, LeaderNotice, PeerMessage


class NoNetwork:
    """A network without peers. Implements `Network`."""

    peers: Mapping[NodeId, PeerStatus] = {}
    down_count = refused_count = invalid_count = 0

    def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        return

    def forget_peer(self, node_id: NodeId) -> None:
        return

    def send(self, node_id: NodeId, group: GroupId, message: PeerMessage) -> None:
        return

    def notify(self, node_id: NodeId, notices: Sequence[LeaderNotice]) -> None:
        return

    def flush(self) -> None:
        return

    async def request(self, node_id: NodeId, kind: int, payload: Sequence[Buffer], timeout_s: float) -> bytes:
        raise PeerUnavailable(node_id, "this node has no peers")

    def is_peer(self, node_id: NodeId) -> bool:
        return False

    def is_up(self, node_id: NodeId) -> bool:
        return False

    def hello_from(self, node_id: NodeId) -> Hello | None:
        return None

    def last_heard_ms(self, node_id: NodeId) -> int | None:
        return None

    def protocol_version(self, node_id: NodeId) -> int:
        return 1

    def features_of(self, node_id: NodeId) -> Mapping[str, tuple[int, int]]:
        return {}
