"""A broker as the catalog knows it, and the checks of a registering node.

A node is identified by its id, and its data directory by an *incarnation*: a node that returns with another directory
has lost its votes, so it gets the next incarnation, and with it a new member id in replica groups. An incarnation
number is never used twice, not even by a node that was removed and registers again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drmq.catalog.records import BrokerRegistered
from drmq.model import ApiError, ErrorCode, MemberId, NodeId, member_id

ROLES = ("broker", "controller")
_NODE_ID_MAX = 2**31 - 1
_DIRECTORY_ID = re.compile(r"(?:[0-9a-f]{2}){1,64}")
_TEXT_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True)
class Broker:
    """One node in its present state. Replaced, never changed."""

    node_id: NodeId
    incarnation: int
    directory_id: str
    host: str
    port: int
    peer_host: str
    peer_port: int
    rack: str | None
    roles: tuple[str, ...]
    starts: int = 0
    boot_id: str = ""
    fenced: bool = False
    draining: bool = False

    @property
    def member(self) -> MemberId:
        """The node's member id in replica groups, in its present incarnation."""
        return member_id(self.node_id, self.incarnation)

    @property
    def takes_replicas(self) -> bool:
        """Whether new replicas may be placed here."""
        return not self.fenced and not self.draining and "broker" in self.roles


def registered(fact: BrokerRegistered, known: Broker | None) -> Broker:
    """The broker after a registration; `known` is what it was before."""
    return Broker(
        fact.node_id,
        fact.incarnation,
        fact.directory_id,
        fact.host,
        fact.port,
        fact.peer_host,
        fact.peer_port,
        fact.rack,
        tuple(fact.roles),
        fact.starts,
        fact.boot_id,
        fenced=known is not None and known.fenced,
        draining=known is not None and known.draining,
    )


def registration(broker: Broker) -> BrokerRegistered:
    """The fact that registers a broker, without its fenced and draining states."""
    return BrokerRegistered(
        broker.node_id,
        broker.incarnation,
        broker.directory_id,
        broker.host,
        broker.port,
        broker.peer_host,
        broker.peer_port,
        broker.rack,
        list(broker.roles),
        broker.starts,
        broker.boot_id,
    )


def older_copy_text(node_id: NodeId) -> str:
    """What a node is told that comes with an older copy of its data directory."""
    # Nodes of peer protocol version 1 look for these words.
    return (
        f"node {node_id} has an older copy of its data directory: it has forgotten what it promised since; start it "
        "with an empty data directory"
    )


def is_older_copy(known: Broker, starts: int, boot_id: str) -> bool:
    """Whether a process uses an older copy of the data directory that the node last registered with.

    Each process that opens the directory increases a counter in it. So a lower number, or the same number from another
    process, means a copy that lacks the promises that the node has made since. A copy that was made while the last
    process ran is not detected.
    """
    return starts < known.starts or (starts == known.starts and boot_id != known.boot_id)


def check_registration(fact: BrokerRegistered, others: Iterable[Broker]) -> None:
    """Raise `ApiError` if the node cannot be part of a cluster with `others`."""
    problem = _problem(fact)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"node {fact.node_id} cannot register: {problem}")
    for other in others:
        if other.directory_id == fact.directory_id and other.node_id != fact.node_id:
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"node {fact.node_id} has the data directory of node {other.node_id} (id {fact.directory_id}), perhaps "
                "a copy of it: two nodes would give the same votes; start it with an empty data directory",
            )


def _problem(fact: BrokerRegistered) -> str | None:
    if not 0 <= fact.node_id <= _NODE_ID_MAX:
        return f"a node id is 0 to {_NODE_ID_MAX}"
    if not _DIRECTORY_ID.fullmatch(fact.directory_id):
        return f"{fact.directory_id[:80]!r} is no directory id: it has two to 128 hex digits in lower case"
    # A node without peers has no peer port.
    for host, port, port_min in ((fact.host, fact.port, 1), (fact.peer_host, fact.peer_port, 0)):
        if not 1 <= len(host) <= _TEXT_LENGTH_MAX:
            return f"{host[:80]!r} is no host: it has 1 to {_TEXT_LENGTH_MAX} characters"
        if not port_min <= port <= 65_535:
            return f"{port} is no port: allowed is {port_min} to 65535"
    if fact.rack is not None and not 1 <= len(fact.rack) <= _TEXT_LENGTH_MAX:
        return f"{fact.rack[:80]!r} is no rack: it has 1 to {_TEXT_LENGTH_MAX} characters"
    unknown = [role for role in fact.roles if role not in ROLES]
    if unknown or not fact.roles or len(set(fact.roles)) < len(fact.roles):
        return f"its roles are {fact.roles}; allowed are {' and '.join(ROLES)}, each once"
    return None


def too_few_brokers(wanted: int, brokers: Sequence[Broker]) -> ApiError:
    """The error if fewer than `wanted` brokers can take a replica."""
    usable = sum(broker.takes_replicas for broker in brokers)
    down = [broker.node_id for broker in brokers if broker.fenced]
    leaving = [broker.node_id for broker in brokers if broker.draining and not broker.fenced]
    there = f"{usable} broker{' is' if usable == 1 else 's are'} there"
    if down:
        there += f", without {_listed(down)} (down)"
    if leaving:
        there += f"{' and' if down else ', without'} {_listed(leaving)} (draining)"
    step = f"start {_listed(down)}" if down else "add brokers"
    if usable:
        step += f", or ask for {usable if usable == 1 else f'1 to {usable}'}"
    return ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"replication factor {wanted} asks for {wanted} broker{'' if wanted == 1 else 's'}, and {there}; {step}",
    )


def _listed(nodes: Sequence[NodeId]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(map(str, nodes))
