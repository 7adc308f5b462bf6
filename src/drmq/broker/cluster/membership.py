"""This node's membership in the cluster: its identity, its peers, and how it joins.

A fresh node has no cluster. It asks its peers: if one of them belongs to a cluster, the node joins that cluster. If all
of them are fresh, they form one together. All of them must be: if some were enough, a node that lost its disk could
help to form the cluster a second time.

To join is to register with the controller. The controller assigns the incarnation of the node, so a node with a new
disk is a new member of its groups, and is not bound by what it promised as an earlier member. A joining node asks any
node that it can reach, and a node that is not the controller forwards the request (`registrations`).

A node connects only to nodes that are configured or in the catalog, at the addresses from there. So a member does not
connect to a joining node before it is registered. Until then the joining node is answered, but learns only that there
is a cluster, and can do nothing but register. The answer to that has the id of the cluster, and the addresses of the
voters, one of which sends it the catalog.

A refusal may be temporary: an id is in use until the end of the process that had it is noticed. A node that is refused
therefore keeps trying, and stops when the refusal has persisted for longer than that can take.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from drmq.broker.cluster.features import offered, own_ranges
from drmq.broker.cluster.metadata import Metadata
from drmq.broker.options import ClusterOptions
from drmq.broker.partitions.log_store import LogStore
from drmq.broker.release import release
from drmq.broker.replication.group_host import GroupHost
from drmq.catalog.brokers import is_older_copy, older_copy_text
from drmq.catalog.features import unsupported
from drmq.model import ApiError, DrmqError, ErrorCode, GroupId, NodeId
from drmq.transport.peers import (
    PROTOCOL_VERSION,
    ConnectionKind,
    GreetingRefusal,
    Hello,
    Identity,
    LeaderNotice,
    Network,
    NoNetwork,
    PeerError,
    PeerMessage,
    PeerRefused,
    PeerUnavailable,
    RefusalCode,
    another_cluster,
    twin,
)
from drmq.transport.peers.hello import is_other_cluster
from drmq.transport.peers.interface import features_of, protocol_version_of

log = logging.getLogger("drmq.broker")

Buffer = bytes | bytearray | memoryview
Handler = Callable[[NodeId, memoryview], Awaitable[Sequence[Buffer]]]

_FINAL = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Refusals of a registration that are final: trying again does not help."""
_STANDING = (RefusalCode.TWIN, RefusalCode.FEATURES)
"""Refusals by peers that end this node if they persist for a while."""
_PARTING_S = 2.0
"""How long the connection to a removed node is kept, so that it learns of its removal and stops."""
_RETRY_S = 0.1
_LOOK_S = 0.1
_REFUSED_FOR_S = 5.0
"""How long a refusal must persist to be final: several peer timeouts, within which the end of a process is noticed."""
_REQUEST_TIMEOUT_S = 5.0
_SAID_EVERY_S = 5.0


class OutcomeOpen(ApiError):
    """A request was sent to another node and not answered, so it is not known whether it was carried out."""


class NodeRemoved(DrmqError):
    """This node has been removed from its cluster, in an orderly way. It has nothing left to do."""


def removed(node_id: NodeId) -> ApiError:
    """The error for a node that returns after it was removed."""
    return ApiError(
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        f"node {node_id} was removed from the cluster; to join it again it must start with an empty data directory",
    )


def check_supported(node_id: NodeId, fields: Mapping[str, Any], finalized: Mapping[str, int]) -> None:
    """Reject the registration of a node that does not support a finalized level. Raises `ApiError`.

    The code ends the node. Releases before feature levels, which do not send their features, know only some such codes.
    """
    ranges = {str(name): (int(lowest), int(highest)) for name, (lowest, highest) in fields.get("features", {}).items()}
    lacking = unsupported(ranges, finalized)
    if lacking is not None:
        is_old = "features" not in fields
        code = ErrorCode.INCONSISTENT_CLUSTER_ID if is_old else ErrorCode.UNSUPPORTED_VERSION
        raise ApiError(code, _not_supported(node_id, lacking))


def _not_supported(node_id: NodeId, lacking: str) -> str:
    return f"node {node_id} cannot take part: {lacking}; start it with a release that supports it"


class Request(IntEnum):
    """Requests between nodes. The numbers are sent, so they never change."""

    REGISTER = 1
    FORWARD = 2
    AUTO_CREATE = 3
    RESERVE_IDS = 4
    REASSIGNED = 5
    ELECT = 6
    REPLICA_LOST = 7
    COORDINATE = 8
    REGISTER_FOR = 9
    APPEND = 10
    READ = 11
    LEASE = 12
    OPEN_RECORDS = 13
    BOUNDS = 14


class Membership:
    """The identity and the peers of this node. Implements `transport.peers.PeerHandler`."""

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
        """The address that is announced to peers; set once the listener is bound."""
        self.network: Network = NoNetwork()
        self.handlers: dict[int, Handler] = {}
        self._store = store
        self._metadata = metadata
        self._host = host
        self._greeted: dict[NodeId, Hello] = {}
        self._changed = asyncio.Event()
        self._blocked: set[NodeId] = set()
        self._refused_at: float | None = None
        self._lacks_voters = False
        """Whether this node was registered by a release that does not name the voters."""

    def identity(self) -> Identity:
        host, port = self.peer_address
        store = self._store
        return Identity(
            store.cluster_id,
            self.node_id,
            store.incarnation,
            store.starts,
            self.boot_id,
            host,
            port,
            release(),
            offered(self.options),
            1 if self.options.greets_as_version_1 else PROTOCOL_VERSION,
        )

    # ---- PeerHandler ----------------------------------------------------------------------------

    def check_hello(self, hello: Hello) -> GreetingRefusal | None:
        if hello.node_id in self._blocked:
            return GreetingRefusal(RefusalCode.CUT_OFF, f"connections with node {hello.node_id} are blocked")
        if is_other_cluster(hello, self._store.cluster_id):
            return another_cluster(hello, self.identity())
        if hello.node_id == self.node_id:
            return GreetingRefusal(RefusalCode.SAME_ID, f"node id {self.node_id} is used twice")
        twin = self.twin_of(hello.node_id, hello.boot_id)
        if twin is not None:
            return twin
        lacking = unsupported(features_of(hello), self._metadata.committed_catalog.features)
        if lacking is not None and (hello.cluster_id is not None or protocol_version_of(hello) < 2):
            # The controller rejects a new node at its registration, with a code that ends it at once. One of the first
            # version of the protocol does not get that far: it registers only with nodes that have connected to it.
            return GreetingRefusal(RefusalCode.FEATURES, _not_supported(hello.node_id, lacking))
        known = self._metadata.catalog.brokers.get(hello.node_id)
        if known is not None and hello.cluster_id is not None and hello.incarnation < known.incarnation:
            text = (
                f"node {hello.node_id} has been replaced by one with a different data directory; start this one with "
                "an empty data directory"
            )
            return GreetingRefusal(RefusalCode.REPLACED, text)
        is_same = known is not None and hello.cluster_id is not None and hello.incarnation == known.incarnation
        if known is not None and is_same and is_older_copy(known, hello.starts, hello.boot_id.hex()):
            return GreetingRefusal(RefusalCode.OLDER_COPY, older_copy_text(hello.node_id))
        if self._may_connect_back(hello):
            asyncio.get_running_loop().call_soon(self._connect_back, hello)
        return None

    def twin_of(self, node_id: NodeId, boot_id: bytes) -> GreetingRefusal | None:
        """The refusal for a process whose id a connected process already has, or None.

        Without it, the two would keep closing each other's connections. A process that was killed has no connections
        left, and one on a machine that is down soon counts as disconnected. A process that replaces either of them is
        accepted, though perhaps not at its first attempt.
        """
        running = self.network.hello_from(node_id)
        if node_id == self.node_id:
            running = Hello.of(self.identity(), ConnectionKind.HEARTBEAT, node_id)
        return None if running is None or running.boot_id == boot_id else twin(running)

    def is_member(self, node_id: NodeId) -> bool:
        """Whether a node is up, is registered in this cluster, and has greeted with that cluster and incarnation."""
        hello = self._greeted.get(node_id)
        known = self._metadata.committed_catalog.brokers.get(node_id)
        return (
            hello is not None
            and known is not None
            and (hello.cluster_id, hello.incarnation) == (self._store.cluster_id, known.incarnation)
        )

    def _may_connect_back(self, hello: Hello) -> bool:
        """Whether a node is dialled at the address in its greeting: if there is no other way to learn the address.

        - A node that has just joined a cluster of releases that do not name the voters to it dials the nodes that
          greet it, until it has the catalog.
        - A node that was restarted knows which nodes vote, but not what is committed: it has no catalog.
          It dials the voters: without them, there may be no controller from which it could learn more.
        """
        if hello.cluster_id is None or hello.cluster_id != self._store.cluster_id:
            return False
        brokers = self._metadata.catalog.brokers
        if hello.node_id in brokers or self.network.is_peer(hello.node_id):
            return False
        return (self._lacks_voters and not brokers) or hello.node_id in self._metadata.voting_nodes()

    def _connect_back(self, hello: Hello) -> None:
        if not self.network.is_peer(hello.node_id) and hello.node_id not in self._blocked:
            self.network.set_peer(hello.node_id, hello.peer_host, hello.peer_port)

    def _meet_voters(self, registered: Mapping[str, Any]) -> None:
        """Dial the voters of the metadata log, of which one will send the catalog to this node."""
        voters = registered.get("voters")
        self._lacks_voters = voters is None
        for node, (host, port) in (voters or {}).items():
            node_id = NodeId(int(node))
            if node_id != self.node_id and node_id not in self._blocked and not self.network.is_peer(node_id):
                self.network.set_peer(node_id, host, port)

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
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"node {self.node_id} does not know requests of kind {kind}; it may run an older release",
            )
        if kind != Request.REGISTER and not self.network.is_peer(peer):
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"node {peer} is neither configured on node {self.node_id} nor in its catalog; it must register first",
            )
        return await handler(peer, payload)

    # ---- peers ----------------------------------------------------------------------------------

    def follow_catalog(self) -> None:
        """Connect to every node of the cluster, at the address that it has registered."""
        for node_id, broker in self._metadata.catalog.brokers.items():
            if node_id != self.node_id and broker.peer_port > 0 and node_id not in self._blocked:
                self.network.set_peer(node_id, broker.peer_host, broker.peer_port)
        for node_id in list(self.network.peers):
            if self._is_removed(node_id):
                # The node has yet to learn of its removal.
                asyncio.get_running_loop().call_later(_PARTING_S, self._part_with, node_id)

    def _is_removed(self, node_id: NodeId) -> bool:
        catalog = self._metadata.catalog
        return node_id in catalog.former_brokers and node_id not in catalog.brokers

    def _part_with(self, node_id: NodeId) -> None:
        if self._is_removed(node_id) and node_id in self.network.peers:
            self.network.forget_peer(node_id)

    def block(self, nodes: set[NodeId]) -> None:
        """Close the connections with these nodes and accept no new ones; connect to all others again. For tests."""
        self._blocked = nodes
        for node_id in nodes:
            self.network.forget_peer(node_id)
        self.follow_catalog()

    def dial_first_peers(self) -> None:
        for node_id, address in self.options.peers.items():
            if node_id != self.node_id:
                self.network.set_peer(node_id, address.host, address.peer_port)

    async def find_cluster(self) -> bool:
        """On a fresh node: wait until it is known whether there is a cluster to join (True) or to form (False).

        Only controllers form a cluster. Other nodes wait until there is one to join.
        """
        others = {node_id for node_id in self.options.peers if node_id != self.node_id}
        may_form = "controller" in self.options.roles
        loop = asyncio.get_running_loop()
        said_at = loop.time()
        while True:
            if any(hello.cluster_id is not None for hello in self._answering().values()):
                return True
            missing = others - self._greeted.keys()
            if not missing and may_form:
                return False
            self._end_if_refused_for_good()
            if loop.time() - said_at > _SAID_EVERY_S:
                said_at = loop.time()
                waited_for = ", ".join(map(str, sorted(missing))) or "(any that belongs to a cluster)"
                why = "".join(f"; {refusal}" for refusal in sorted(set(self._refusals())))
                log.info("waiting for node %s to %s a cluster%s", waited_for, "form" if may_form else "join", why)
            await self._next_change(_LOOK_S)

    def _answering(self) -> dict[NodeId, Hello]:
        """The last greetings of the nodes that answer this one.

        A node that does not know this one yet answers, and does not connect to it: it is not up. It can be asked to
        register this node all the same.
        """
        connected = {
            node_id: status.hello
            for node_id, status in self.network.peers.items()
            if status.is_connected and status.hello is not None
        }
        return connected | self._greeted

    async def _next_change(self, timeout_s: float) -> None:
        """Wait until a peer connects or disconnects, or `notice_change` is called, for `timeout_s` at most."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _refusals(self) -> list[str]:
        """The refusals between this node and its peers, in either direction."""
        return [status.refusal for status in self.network.peers.values() if status.refusal is not None]

    def _end_if_refused_for_good(self, unregistered: ApiError | PeerRefused | None = None) -> None:
        """Raise `DrmqError` if only the operator can change that this node is rejected.

        `unregistered` is the reason why its registration was rejected.
        """
        refusals = [(status.refusal_code, status.refusal) for status in self.network.peers.values()]
        for code, text in refusals:
            if code is RefusalCode.OLDER_COPY:
                raise DrmqError(text)
        now = asyncio.get_running_loop().time()
        standing = next((text for code, text in refusals if code in _STANDING), None) or self._foreign_peers()
        if unregistered is not None and unregistered.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            standing = str(unregistered)
        if standing is None:
            self._refused_at = None
        elif self._refused_at is None:
            self._refused_at = now
        elif now - self._refused_at > _REFUSED_FOR_S:
            raise DrmqError(standing)

    def _foreign_peers(self) -> str | None:
        """An error text if all the configured peers belong to another cluster, else None."""
        found = [self.network.peers.get(node_id) for node_id in self.options.peers if node_id != self.node_id]
        foreign = [each for each in found if each is not None and each.refusal_code is RefusalCode.OTHER_CLUSTER]
        if not foreign or len(foreign) < len(found):
            return None
        why = foreign[0].refusal
        return (
            f"{self._store.location} holds the data of another cluster than that of this node's peers: {why}; check "
            "the data directory and --peers"
        )

    @property
    def peers_are_strangers(self) -> bool:
        """Whether this node has configured peers and none of them has ever been in its cluster.

        Either the peers or the data directory is a mistake, unless the peers are about to join.
        """
        catalog = self._metadata.catalog
        others = {node_id for node_id in self.options.peers if node_id != self.node_id}
        return bool(others) and not others & (catalog.brokers.keys() | catalog.former_brokers.keys())

    async def accepted(self) -> None:
        """Wait until a configured peer is connected, or has joined the cluster. Raises `DrmqError` if one refuses."""
        while self.peers_are_strangers:
            for node_id in self.options.peers:
                status = self.network.peers.get(node_id)
                if status is not None and (status.is_up or status.is_connected):
                    return
                if status is not None and status.refusal is not None:
                    raise DrmqError(
                        f"{self._store.location} holds the data of cluster {self._store.cluster_id}, which has none of "
                        f"the configured peers of node {self.node_id}, and node {node_id} cannot be connected to: "
                        f"{status.refusal}. To join the cluster of these peers, start with an empty data directory; to "
                        "continue with this cluster, start without them"
                    )
            await asyncio.sleep(_RETRY_S)

    # ---- registration ---------------------------------------------------------------------------

    async def register(
        self, advertised: tuple[str, int], local: Callable[[], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """Register with the controller, however long that takes, and return its answer.

        Raises `DrmqError` if the refusal is final.
        """
        loop = asyncio.get_running_loop()
        said_at = loop.time()
        payload = json.dumps(self.registration(advertised)).encode()
        while True:
            self._check_peer_port()
            reason = next(iter(self._refusals()), "no node answers")
            refused: ApiError | PeerRefused | None = None
            if self._metadata.is_controller:
                try:
                    return await local()
                except ApiError as error:
                    refused, reason = error, error.message
            for node_id in self._candidates():
                try:
                    answer = await self.network.request(node_id, Request.REGISTER, (payload,), _REQUEST_TIMEOUT_S)
                    fields = json.loads(answer)
                    assert isinstance(fields, dict)
                    self._meet_voters(fields)
                    return fields
                except (PeerError, ApiError) as error:
                    reason = str(error)
                    if isinstance(error, PeerRefused | ApiError):
                        refused = error
                        if error.code in _FINAL:
                            was_removed = error.code is ErrorCode.BROKER_ID_NOT_REGISTERED
                            raise (NodeRemoved(reason) if was_removed else DrmqError(reason)) from error
            self._end_if_refused_for_good(refused)
            if loop.time() - said_at > _SAID_EVERY_S:
                said_at = loop.time()
                log.info("not registered with the cluster yet: %s", reason)
            await self._next_change(_RETRY_S)

    def _check_peer_port(self) -> None:
        """Raise `DrmqError` if this node has no port for peers but needs other voters: it would wait forever."""
        others = self._metadata.voting_nodes() - {self.node_id}
        if isinstance(self.network, NoNetwork) and others:
            raise DrmqError(
                f"{self._store.location} belongs to a cluster with other voters (node "
                f"{', '.join(map(str, sorted(others)))}), and node {self.node_id} has no port for other nodes; start "
                "it with --peers or --peer-port"
            )

    def notice_change(self) -> None:
        """Wake the coroutines that wait in `find_cluster` or `register`."""
        self._changed.set()

    def registration(self, advertised: tuple[str, int]) -> dict[str, Any]:
        """The description of this node for the catalog."""
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
            "features": {name: list(levels) for name, levels in own_ranges(self.options).items()},
        }

    def _candidates(self) -> list[NodeId]:
        controller = self._metadata.controller
        others = [node_id for node_id in self._answering() if node_id != controller]
        return [controller, *others] if controller is not None and controller != self.node_id else others

    async def ask_controller(self, kind: Request, payload: Sequence[Buffer], timeout_s: float) -> bytes:
        """Send a request to the controller. Raises `ApiError` (NOT_CONTROLLER) if there is none or it does not answer.

        It is an `OutcomeOpen` if the request was sent and not answered.
        """
        controller = self._metadata.controller
        if controller is None or controller == self.node_id:
            raise self._metadata.not_controller()
        return await self.ask(controller, kind, payload, timeout_s, ErrorCode.NOT_CONTROLLER)

    async def ask(
        self, node_id: NodeId, kind: Request, payload: Sequence[Buffer], timeout_s: float, unanswered: ErrorCode
    ) -> bytes:
        """Send a request to a node. Raises `ApiError` with the code of its refusal, or `unanswered`.

        The latter is an `OutcomeOpen` if the request was sent.
        """
        try:
            return await self.network.request(node_id, kind, payload, timeout_s)
        except PeerError as error:
            if isinstance(error, PeerRefused):
                raise ApiError(error.code, error.text) from error
            is_open = isinstance(error, PeerUnavailable) and error.is_outcome_open
            raise (OutcomeOpen if is_open else ApiError)(unanswered, str(error)) from error
