"""This node's place in the cluster: its identity, its peers, and how it came to belong.

A fresh node belongs nowhere. It looks at its peers: where one of them belongs to a cluster, the node joins it. Where
all of them are as fresh as itself, they form one together, and only then: were some of them enough, a node
that lost its disk could help to found the cluster a second time.

Joining is registering with the controller. The controller says which life of the node this is, so a node with a
new disk is a new member of its groups, and what it once promised under its old name is nobody's memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from drmq.broker.group_host import GroupHost
from drmq.broker.logs import LogStore
from drmq.broker.metadata import Metadata
from drmq.broker.options import ClusterOptions
from drmq.catalog.brokers import is_older_copy, older_copy_text, tells_of_older_copy
from drmq.model import ApiError, DrmqError, ErrorCode, GroupId, NodeId
from drmq.transport.peers import (
    Hello,
    Identity,
    LeaderNotice,
    Network,
    NoNetwork,
    PeerError,
    PeerMessage,
    PeerRefused,
    PeerUnavailable,
)

log = logging.getLogger("drmq.broker")

Buffer = bytes | bytearray | memoryview
Handler = Callable[[NodeId, memoryview], Awaitable[Sequence[Buffer]]]

_FINAL = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Refusals of a registration that trying again does not change."""
_PARTING_S = 2.0
"""How long a node that was removed is still spoken to, so that it hears of it and ends by itself."""
_RETRY_S = 0.1
_REQUEST_TIMEOUT_S = 5.0
_SAID_EVERY_S = 5.0


class OutcomeOpen(ApiError):
    """The controller was asked, and went silent: whether it has done what it was asked is not known."""


class NodeRemoved(DrmqError):
    """This node has been taken out of its cluster, in order. It has nothing left to do."""


def removed(node_id: NodeId) -> ApiError:
    """What a node is told that comes back after it was removed."""
    return ApiError(
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        f"node {node_id} was removed from the cluster; to join it again it must start with an empty data directory",
    )


class Request(IntEnum):
    """What nodes ask each other. The numbers are sent, so they never change."""

    REGISTER = 1
    FORWARD = 2
    AUTO_CREATE = 3
    RESERVE_IDS = 4
    REASSIGNED = 5
    ELECT = 6
    REPLICA_LOST = 7
    COORDINATE = 8


class Membership:
    """Identity and peers of one node. Implements `transport.peers.PeerHandler`."""

    def __init__(
        self,
        node_id: NodeId,
        store: LogStore,
        options: ClusterOptions,
        metadata: Metadata,
        host: GroupHost,
        boot_id: bytes,
    ) -> None:
        self.node_id = node_id
        self.options = options
        self.boot_id = boot_id
        self.peer_address: tuple[str, int] = (options.advertised_peer_host or options.peer_host, options.peer_port or 0)
        """Where peers are told to connect; set once the listener is bound."""
        self.network: Network = NoNetwork()
        self.handlers: dict[int, Handler] = {}
        self._store = store
        self._metadata = metadata
        self._host = host
        self._greeted: dict[NodeId, Hello] = {}
        self._changed = asyncio.Event()
        self._blocked: set[NodeId] = set()

    def identity(self) -> Identity:
        host, port = self.peer_address
        store = self._store
        return Identity(store.cluster_id, self.node_id, store.incarnation, store.starts, self.boot_id, host, port)

    # ---- PeerHandler ----------------------------------------------------------------------------

    def check_hello(self, hello: Hello) -> str | None:
        if hello.node_id in self._blocked:
            return f"node {hello.node_id} is cut off"
        own = self._store.cluster_id
        if own is not None and hello.cluster_id is not None and own != hello.cluster_id:
            return (
                f"node {hello.node_id} belongs to cluster {hello.cluster_id}, and node {self.node_id} to {own}; "
                "to join, it must start with an empty data directory"
            )
        known = self._metadata.catalog.brokers.get(hello.node_id)
        if known is not None and hello.cluster_id is not None and hello.incarnation < known.incarnation:
            return f"node {hello.node_id} has been replaced by one with another disk; this one must start empty"
        is_same_life = known is not None and hello.cluster_id is not None and hello.incarnation == known.incarnation
        if known is not None and is_same_life and is_older_copy(known, hello.starts, hello.boot_id.hex()):
            return older_copy_text(hello.node_id)
        if hello.node_id == self.node_id:
            return f"node id {self.node_id} is used twice"
        if hello.node_id not in self.network.peers:
            # One that joins: it can ask us for admission only when we speak to it as well.
            asyncio.get_running_loop().call_soon(self._meet, hello)
        return None

    def _meet(self, hello: Hello) -> None:
        if hello.node_id not in self.network.peers and hello.node_id not in self._blocked:
            self.network.set_peer(hello.node_id, hello.peer_host, hello.peer_port)

    def on_peer_up(self, hello: Hello) -> None:
        self._greeted[hello.node_id] = hello
        self._changed.set()
        self._host.on_peer_up(hello)

    def on_peer_down(self, node_id: NodeId) -> None:
        self._greeted.pop(node_id, None)
        self._changed.set()
        self._host.on_peer_down(node_id)

    def on_peer_heard(self, node_id: NodeId) -> None:
        return

    def on_group_message(self, peer: NodeId, group: GroupId, message: PeerMessage) -> None:
        self._host.on_group_message(peer, group, message)

    def on_notices(self, peer: NodeId, notices: Sequence[LeaderNotice]) -> None:
        self._host.on_notices(notices)

    async def on_request(self, peer: NodeId, kind: int, payload: memoryview) -> Sequence[Buffer]:
        handler = self.handlers.get(kind)
        if handler is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"node {self.node_id} does not know requests of kind {kind}")
        return await handler(peer, payload)

    # ---- peers ----------------------------------------------------------------------------------

    def follow_catalog(self) -> None:
        """Connect to every node of the cluster, at the addresses it registered."""
        for node_id, broker in self._metadata.catalog.brokers.items():
            if node_id != self.node_id and broker.peer_port > 0 and node_id not in self._blocked:
                self.network.set_peer(node_id, broker.peer_host, broker.peer_port)
        for node_id in list(self.network.peers):
            if self._is_removed(node_id):
                # It has yet to hear of it.
                asyncio.get_running_loop().call_later(_PARTING_S, self._part_with, node_id)

    def _is_removed(self, node_id: NodeId) -> bool:
        catalog = self._metadata.catalog
        return node_id in catalog.former_brokers and node_id not in catalog.brokers

    def _part_with(self, node_id: NodeId) -> None:
        if self._is_removed(node_id) and node_id in self.network.peers:
            self.network.forget_peer(node_id)

    def block(self, nodes: set[NodeId]) -> None:
        """Have no connection with these nodes, and with all others again. For tests."""
        self._blocked = nodes
        for node_id in nodes:
            self.network.forget_peer(node_id)
        self.follow_catalog()

    def dial_first_peers(self) -> None:
        for node_id, address in self.options.peers.items():
            if node_id != self.node_id:
                self.network.set_peer(node_id, address.host, address.peer_port)

    async def find_cluster(self) -> bool:
        """On a fresh node: wait until it is clear whether there is a cluster to join (True) or one to form.

        Only controllers form one. A node that is none waits for one to join.
        """
        others = {node_id for node_id in self.options.peers if node_id != self.node_id}
        may_form = "controller" in self.options.roles
        loop = asyncio.get_running_loop()
        said_at = loop.time()
        while True:
            if any(hello.cluster_id is not None for hello in self._greeted.values()):
                return True
            missing = others - self._greeted.keys()
            if not missing and may_form:
                return False
            if loop.time() - said_at > _SAID_EVERY_S:
                said_at = loop.time()
                waited_for = ", ".join(map(str, sorted(missing))) or "any that belongs to one"
                log.info("waiting for node %s to %s a cluster", waited_for, "form" if may_form else "join")
            self._changed.clear()
            try:
                async with asyncio.timeout(_SAID_EVERY_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    @property
    def peers_are_strangers(self) -> bool:
        """Whether this node was told of peers and its own cluster has none of them: one of the two is a mistake,
        unless they are about to join it.
        """
        catalog = self._metadata.catalog
        others = {node_id for node_id in self.options.peers if node_id != self.node_id}
        return bool(others) and not others & (catalog.brokers.keys() | catalog.former_brokers.keys())

    async def accepted(self) -> None:
        """Return when a peer speaks to this node, or has joined it. Raises `DrmqError` when one refuses to."""
        while self.peers_are_strangers:
            for node_id in self.options.peers:
                status = self.network.peers.get(node_id)
                if status is not None and status.is_up:
                    return
                if status is not None and status.refusal is not None:
                    raise DrmqError(
                        f"{self._store.location} holds cluster {self._store.cluster_id}, in which node {self.node_id} "
                        f"knows none of the peers it was told of, and there is no way to node {node_id}: "
                        f"{status.refusal}. To join the cluster of those peers, start with an empty data directory; to "
                        "go on with this one, start without them"
                    )
            await asyncio.sleep(_RETRY_S)

    # ---- registration ---------------------------------------------------------------------------

    async def register(
        self, advertised: tuple[str, int], local: Callable[[], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """Register with whoever is the controller, however long that takes; what the controller says."""
        loop = asyncio.get_running_loop()
        said_at = loop.time()
        payload = json.dumps(self.registration(advertised)).encode()
        while True:
            reason = "no node answers"
            for status in self.network.peers.values():
                if status.refusal is not None and tells_of_older_copy(status.refusal):
                    raise DrmqError(status.refusal)
            if self._metadata.is_controller:
                try:
                    return await local()
                except ApiError as error:
                    reason = error.message
            for node_id in self._candidates():
                try:
                    answer = await self.network.request(node_id, Request.REGISTER, (payload,), _REQUEST_TIMEOUT_S)
                    fields = json.loads(answer)
                    assert isinstance(fields, dict)
                    return fields
                except (PeerError, ApiError) as error:
                    reason = str(error)
                    if getattr(error, "code", None) in _FINAL or tells_of_older_copy(reason):
                        raise DrmqError(reason) from error
            if loop.time() - said_at > _SAID_EVERY_S:
                said_at = loop.time()
                log.info("not registered with the cluster yet: %s", reason)
            self._changed.clear()
            try:
                async with asyncio.timeout(_RETRY_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def notice_change(self) -> None:
        """Something has happened that whoever waits here wants to look at."""
        self._changed.set()

    def registration(self, advertised: tuple[str, int]) -> dict[str, Any]:
        """Who this node is, for the catalog."""
        return {
            "cluster_id": self._store.cluster_id,
            "directory_id": self._store.directory_id,
            "starts": self._store.starts,
            "boot_id": self.boot_id.hex(),
            "host": advertised[0],
            "port": advertised[1],
            "peer_host": self.peer_address[0],
            "peer_port": self.peer_address[1],
            "rack": self.options.rack,
            "roles": list(self.options.roles),
        }

    def _candidates(self) -> list[NodeId]:
        controller = self._metadata.controller
        others = [node_id for node_id in self._greeted if node_id != controller]
        return [controller, *others] if controller is not None and controller != self.node_id else others

    async def ask_controller(self, kind: Request, payload: Sequence[Buffer], timeout_s: float) -> bytes:
        """Ask the controller. Raises `ApiError` (NOT_CONTROLLER) if there is none, or it does not answer.

        It is an `OutcomeOpen` where the request was sent and no answer came.
        """
        controller = self._metadata.controller
        if controller is None or controller == self.node_id:
            raise self._metadata.not_controller()
        return await self.ask(controller, kind, payload, timeout_s, ErrorCode.NOT_CONTROLLER)

    async def ask(
        self, node_id: NodeId, kind: Request, payload: Sequence[Buffer], timeout_s: float, unanswered: ErrorCode
    ) -> bytes:
        """Ask a node. Raises `ApiError`: what it refused with, or `unanswered`, which is an `OutcomeOpen` where the
        request was sent.
        """
        try:
            return await self.network.request(node_id, kind, payload, timeout_s)
        except PeerError as error:
            if isinstance(error, PeerRefused):
                raise ApiError(error.code, error.text) from error
            is_open = isinstance(error, PeerUnavailable) and error.is_outcome_open
            raise (OutcomeOpen if is_open else ApiError)(unanswered, str(error)) from error
