"""How a node that joins is registered, whichever node it asks.

A node that joins knows some nodes of the cluster, and perhaps not the controller. Whom it asks passes that on, and
the answer back: a refusal reaches the one that joins with its code, so that it knows which ones are final.

What is passed on is a request of its own kind. It is never passed on again, so it cannot go round between nodes that
take each other for the controller, and it is served only if a member of the cluster asks: nobody else speaks for
another node.
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

_PASS_ON_S = 4.0
"""Less than the one that joins waits, so that it hears why there was no answer."""


class Registrations:
    """Takes registrations on every node; the controller decides about them."""

    def __init__(self, metadata: Metadata, membership: Membership, controller: Controller) -> None:
        self._metadata = metadata
        self._membership = membership
        self._controller = controller

    async def register(self, node_id: NodeId, fields: Mapping[str, Any]) -> dict[str, Any]:
        """On the controller: take a node in; what it is told. Raises `ApiError`."""
        self._metadata.check_controller()
        twin = self._membership.twin_of(node_id, bytes.fromhex(fields["boot_id"]))
        if twin is not None:
            raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, twin.text)
        return self.answer_for(await self._controller.register(node_id, fields))

    def answer_for(self, broker: Broker) -> dict[str, Any]:
        """What a node is told that is registered."""
        return {
            "cluster_id": self._metadata.catalog.cluster_id,
            "incarnation": broker.incarnation,
            # Of everything that any node can have acted upon. What is decided beyond may never be committed.
            "offset": self._metadata.applied_offset,
        }

    async def serve(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        """A node asks for itself."""
        fields = json.loads(bytes(payload))
        if not self._metadata.is_controller:
            passed_on = json.dumps({**fields, "node_id": peer}).encode()
            return (await self._membership.ask_controller(Request.REGISTER_FOR, (passed_on,), _PASS_ON_S),)
        return (json.dumps(await self.register(peer, fields)).encode(),)

    async def serve_passed_on(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        """A node asks for one that joins."""
        self._metadata.check_controller()
        fields = json.loads(bytes(payload))
        if not self._membership.is_member(peer):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"node {peer} is not registered itself, so it cannot speak for node {fields['node_id']}",
            )
        return (json.dumps(await self.register(NodeId(fields["node_id"]), fields)).encode(),)
