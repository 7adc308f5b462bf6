"""Registers a node that joins, whichever node it sends its request to.

A joining node knows some nodes of the cluster, and perhaps not the controller. A node that is not the controller
forwards the request, and returns the answer. A refusal keeps its error code, so that the joining node knows whether it
is final.

A forwarded registration is a request of a different kind. It is never forwarded again, so it cannot circulate between
nodes that take each other for the controller. It is served only if a member of the cluster sends it: no other node may
act for another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from drmq.broker.cluster.controller import Controller
from drmq.broker.cluster.membership import Buffer, Membership, Request
from drmq.broker.cluster.metadata import Metadata
from drmq.catalog import Broker
from drmq.model import ApiError, ErrorCode, NodeId

_FORWARD_TIMEOUT_S = 4.0
"""Shorter than the joining node's own timeout, so that it receives the reason why there was no answer."""


class Registrations:
    """Accepts registrations on every node; the controller decides about them."""

    def __init__(self, metadata: Metadata, membership: Membership, controller: Controller) -> None:
        self._metadata = metadata
        self._membership = membership
        self._controller = controller

    async def register(self, node_id: NodeId, fields: Mapping[str, Any]) -> dict[str, Any]:
        """On the controller: register a node and return the answer for it. Raises `ApiError`."""
        self._metadata.check_controller()
        twin = self._membership.twin_of(node_id, bytes.fromhex(fields["boot_id"]))
        if twin is not None:
            raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, twin.text)
        return self.answer_for(await self._controller.register(node_id, fields))

    def answer_for(self, broker: Broker) -> dict[str, Any]:
        """The answer for a registered node."""
        return {
            "cluster_id": self._metadata.catalog.cluster_id,
            "incarnation": broker.incarnation,
            # All committed facts, on which other nodes may have acted. Later decisions may never be committed.
            "offset": self._metadata.applied_offset,
            # The node does not have the catalog yet, and accepts it only from nodes that it knows.
            "voters": {
                node_id: (known.peer_host, known.peer_port)
                for node_id in sorted(self._metadata.voting_nodes())
                if (known := self._metadata.catalog.brokers.get(node_id)) is not None and known.peer_port > 0
            },
        }

    async def serve(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        """Serve a node's own registration."""
        fields = json.loads(bytes(payload))
        if not self._metadata.is_controller:
            forwarded = json.dumps({**fields, "node_id": peer}).encode()
            return (await self._membership.ask_controller(Request.REGISTER_FOR, (forwarded,), _FORWARD_TIMEOUT_S),)
        return (json.dumps(await self.register(peer, fields)).encode(),)

    async def serve_forwarded(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        """Serve a registration that `peer` forwards for a joining node."""
        self._metadata.check_controller()
        fields = json.loads(bytes(payload))
        if not self._membership.is_member(peer):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"node {peer} is not registered itself, so it cannot forward the registration of node "
                f"{fields['node_id']}",
            )
        return (json.dumps(await self.register(NodeId(fields["node_id"]), fields)).encode(),)
