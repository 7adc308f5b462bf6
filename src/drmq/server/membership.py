"""A node's place in a cluster: the settings, and the options for the broker made from them.

Peers are written `ID:HOST:PORT` with the port for clients, because that is the address that users know. Nodes
communicate through a separate listener, by default 1000 ports higher. If it is elsewhere, the peer is written
`ID:HOST:PORT:PEERPORT`.

All nodes can be given the same list: a node that finds its own id there, with its own address, skips that entry. Its
own id with another address is an error, because two nodes with the same id would run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from drmq.broker.options import ROLES, ClusterOptions, PeerAddress
from drmq.model import NodeId
from drmq.model.address import Address, split_address
from drmq.model.options import INT32_MAX, InvalidOption, Range

PEER_PORT_DISTANCE = 1000
"""The default distance of the port for peers from the port for clients."""
WILDCARD_HOSTS = frozenset({"0.0.0.0", "::", ""})
"""Addresses that listen on all interfaces, and that cannot be connected to."""

_PORT_MAX = 65535
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PEER = re.compile(r"(?P<id>[^:]*):(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>[^:]*)(?::(?P<peer_port>[^:]*))?")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings about a node's place in a cluster."""

    peers: tuple[str, ...] = ()
    """The other nodes, as ID:HOST:PORT separated by commas, where PORT is the port for clients. In a new cluster, list
    all other nodes, the same on every node; for a node that joins a cluster, list any nodes that are up. A node that
    finds itself in the list skips that entry. If a peer's port for other nodes is not PORT + 1000, write
    ID:HOST:PORT:PEERPORT."""

    peer_port: Annotated[int, Range(0, _PORT_MAX)] | None = None
    """Port on which other nodes reach this node; 0 picks a free one. Default: `port` + 1000 if there are peers;
    otherwise the node is a single-node cluster that no other node can join."""

    peer_host: str | None = None
    """Address to listen on for other nodes. Default: `host`."""

    advertised_peer_host: str | None = None
    """Name or address that other nodes connect to. Default: the address on which this node listens for them."""

    rack: str | None = None
    """Location of the node: a rack, a room, a zone. The replicas of a partition are spread over racks, and a client
    that sets `client.rack` may read from a replica in its rack."""

    roles: tuple[str, ...] = ROLES
    """What the node does: a `broker` keeps partitions and serves clients, a `controller` votes on the metadata."""


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """The node's id and its addresses for clients, as set in the configuration."""

    node_id: int
    host: str
    port: int
    advertise: str | None

    @property
    def advertised_host(self) -> str:
        return split_address(self.advertise)[0] if self.advertise is not None else self.host


def cluster_options(settings: ClusterSettings, node: NodeAddress) -> ClusterOptions:
    """The options for the broker. Raises `InvalidOption` with the name of the wrong setting."""
    listed = parse_peers(settings.peers)
    host = settings.peer_host or node.host
    port = _peer_port(settings, node)
    advertised = settings.advertised_peer_host
    if advertised in WILDCARD_HOSTS:
        raise InvalidOption("advertised_peer_host", f"{advertised!r} is not an address that a node can connect to")
    if port is not None and advertised is None and host in WILDCARD_HOSTS:
        # A node that listens on all interfaces has an advertised address for clients, which works for other nodes too.
        advertised = node.advertised_host
        if advertised in WILDCARD_HOSTS:
            raise InvalidOption(
                "peer_host",
                f"{host!r} listens on every address, so the address that other nodes use must be set; "
                "set `advertised_peer_host` to a name or address of this machine",
            )
    own_hosts = {node.host, node.advertised_host, host, advertised or host}
    return ClusterOptions(
        peers=_others(listed, node, own_hosts, port),
        peer_host=host,
        peer_port=port,
        advertised_peer_host=advertised,
        rack=settings.rack,
        roles=_roles(settings.roles),
    )


def parse_peers(texts: Iterable[str]) -> dict[NodeId, PeerAddress]:
    """Peers by id, from the entries of a list. Raises `InvalidOption`."""
    found: dict[NodeId, PeerAddress] = {}
    for text in texts:
        node_id, address = _parse_peer(text)
        if node_id in found:
            raise InvalidOption("peers", f"node {node_id} is named twice; each node needs a unique id")
        for other, known in found.items():
            if _same_listener(known, address):
                raise InvalidOption(
                    "peers", f"nodes {other} and {node_id} have the same address ({address.host}:{address.port})"
                )
        found[node_id] = address
    return found


def default_peer_port(port: int) -> int:
    """The default port for peers of a node with this port for clients. Raises `ValueError` if it is no valid port."""
    if port + PEER_PORT_DISTANCE > _PORT_MAX:
        raise ValueError(
            f"{port} + {PEER_PORT_DISTANCE} is not a valid port, so the port for other nodes must be given; "
            f"or choose a port up to {_PORT_MAX - PEER_PORT_DISTANCE}"
        )
    return port + PEER_PORT_DISTANCE


def _parse_peer(text: str) -> tuple[NodeId, PeerAddress]:
    parts = _PEER.fullmatch(text)
    if parts is None:
        raise InvalidOption("peers", f"{text!r} is not ID:HOST:PORT, such as 2:localhost:9093 (IPv6: 2:[::1]:9093)")
    number, host = parts["id"], parts["host"].removeprefix("[").removesuffix("]")
    if not (number.isascii() and number.isdigit() and int(number) <= INT32_MAX):
        raise InvalidOption("peers", f"{text!r}: {number!r} is not a node id; allowed is 0 to {INT32_MAX}")
    if not host or host in WILDCARD_HOSTS or any(character.isspace() for character in host):
        raise InvalidOption("peers", f"{text!r}: {host!r} is not a host that a node can connect to")
    port = _port(text, parts["port"])
    if parts["peer_port"] is not None:
        return NodeId(int(number)), PeerAddress(host, port, _port(text, parts["peer_port"]))
    try:
        return NodeId(int(number)), PeerAddress(host, port, default_peer_port(port))
    except ValueError as error:
        raise InvalidOption("peers", f"{text!r}: {error}, as ID:HOST:PORT:PEERPORT") from None


def _port(text: str, port: str) -> int:
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= _PORT_MAX):
        raise InvalidOption("peers", f"{text!r}: {port!r} is not a port; allowed is 1 to {_PORT_MAX}")
    return int(port)


def _peer_port(settings: ClusterSettings, node: NodeAddress) -> int | None:
    if settings.peer_port is not None:
        if settings.peer_port and settings.peer_port == node.port:
            raise InvalidOption("peer_port", f"{node.port} is the port for clients; other nodes need another one")
        return settings.peer_port
    if not settings.peers:
        return None
    if node.port == 0:
        return 0
    try:
        return default_peer_port(node.port)
    except ValueError as error:
        raise InvalidOption("port", f"{error} (`peer_port`)") from None


def _others(
    listed: dict[NodeId, PeerAddress], node: NodeAddress, own_hosts: set[str], peer_port: int | None
) -> dict[NodeId, PeerAddress]:
    """The peers without the node itself."""
    others = {}
    for node_id, address in listed.items():
        has_ports = (address.port, address.peer_port) == (node.port, peer_port)
        is_own = has_ports and (address.host in own_hosts or bool(address.host in _LOOPBACK and own_hosts & _LOOPBACK))
        shown = f"{Address(address.host, address.port)} with peer port {address.peer_port}"
        if node_id != node.node_id:
            if is_own:
                raise InvalidOption(
                    "peers", f"{shown} is the address of this node, which is {node.node_id} and not {node_id}"
                )
            others[node_id] = address
        # A node that listens on all interfaces has every name of its machine, and these names are not known here.
        elif not is_own and not (has_ports and own_hosts & WILDCARD_HOSTS):
            raise InvalidOption(
                "peers",
                f"node {node_id} is this node, and {shown} is not its address "
                f"({Address(node.advertised_host, node.port)} with peer port {peer_port}); "
                "set another `node_id`, or correct the list",
            )
    return others


def _same_listener(one: PeerAddress, other: PeerAddress) -> bool:
    same_host = one.host == other.host or {one.host, other.host} <= _LOOPBACK
    return same_host and bool({one.port, one.peer_port} & {other.port, other.peer_port})


def _roles(names: tuple[str, ...]) -> tuple[str, ...]:
    """Roles in their usual order. Raises `InvalidOption`."""
    unknown = [name for name in names if name not in ROLES]
    if unknown:
        raise InvalidOption("roles", f"{unknown[0]!r} is not a role; allowed are {' and '.join(ROLES)}, or one of them")
    if not names:
        raise InvalidOption("roles", f"a node without a role does nothing; allowed are {' and '.join(ROLES)}")
    return tuple(role for role in ROLES if role in names)
