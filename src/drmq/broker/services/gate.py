"""The gate: the one place where requests are checked before they are carried out.

Every door passes each request to the gate once, after it is parsed and before it has any effect. So does a node that
carries out a request which another node has forwarded. The gate takes a request through three stages, in this order:

1. *authenticate*: is the caller known? An unknown caller is refused, whatever the request.
2. *authorise*: does the caller have the permissions that the request needs? The gate returns the missing ones. A
   request with several topics or groups is refused by entry, and its other entries are carried out.
3. *throttle*: how long must the caller wait before its next request?

To add checks, subclass `Gate` and override a stage. The stages of `Gate` itself admit everything. A broker starts with
`OPEN`, which gives the same results without computing the permissions that a request needs, since every Produce and
Fetch passes the gate.

The door determines the permissions that a request needs (`kafka/permissions.py`), in Kafka's terms: an operation on a
resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from drmq.broker.services.caller import Caller
from drmq.model import ApiError, ErrorCode

R = TypeVar("R")


class Operation(IntEnum):
    """The operations of Kafka's access control, with the protocol's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Types of resources, with the numbers of Kafka's access control."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER, as in Kafka."""

_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Permission(NamedTuple):
    """The permission to perform one operation on one resource."""

    operation: Operation
    resource_type: ResourceType
    name: str

    @property
    def refusal(self) -> ErrorCode:
        """The error code for a request that lacks this permission."""
        return _REFUSALS[self.resource_type]


def on_topic(operation: Operation, name: str) -> Permission:
    return Permission(operation, ResourceType.TOPIC, name)


def on_group(operation: Operation, name: str) -> Permission:
    return Permission(operation, ResourceType.GROUP, name)


def on_cluster(operation: Operation) -> Permission:
    return Permission(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def single(permission: Permission) -> Iterable[Permission]:
    """The `permissions` argument of `Gate.admit` for a request that is represented by the one permission it needs."""
    return (permission,)


def refusal(caller: Caller, permission: Permission) -> ApiError:
    """The error for a caller that lacks a permission."""
    operation, kind, name = permission
    return ApiError(
        permission.refusal,
        f"{caller.principal} lacks {operation.name} on {kind.name.lower().replace('_', ' ')} {name!r}",
    )


class Admission(NamedTuple):
    """The gate's decision about one request."""

    refused: frozenset[Permission]
    """The permissions that the request needs and the caller does not have."""
    throttle_ms: int = 0
    """How long the caller must wait before its next request."""


ADMITTED: Final = Admission(frozenset())
"""Everything is allowed, and the caller need not wait."""


class Gate:
    """Checks requests, one stage after the other. Used on the event loop; a stage must not block."""

    def authenticate(self, caller: Caller) -> None:
        """Raise `ApiError` if the caller must not be served at all."""

    def authorise(self, caller: Caller, api: str, permissions: Sequence[Permission]) -> Iterable[Permission]:
        """Return the `permissions` that the caller does not have, or raise `ApiError` to refuse the whole request."""
        return ()

    def throttle(self, caller: Caller, api: str, cost_bytes: int) -> int:
        """Return how many milliseconds the caller must wait before its next request.

        `cost_bytes` is the request's size. It is 0 for a forwarded request, whose cost the forwarding node has counted.
        """
        return 0

    def admit(
        self,
        caller: Caller,
        api: str,
        cost_bytes: int,
        permissions: Callable[[R], Iterable[Permission]],
        request: R,
    ) -> Admission:
        """Take one request through the stages. `permissions(request)` returns the permissions that it needs.

        Raises `ApiError` for a request that is refused as a whole.
        """
        self.authenticate(caller)
        refused = frozenset(self.authorise(caller, api, tuple(dict.fromkeys(permissions(request)))))
        return Admission(refused, self.throttle(caller, api, cost_bytes))

    def allows(self, caller: Caller, api: str, permission: Permission) -> bool:
        """Whether the caller of an admitted request has a permission. For requests that list everything."""
        return not tuple(self.authorise(caller, api, (permission,)))


class OpenGate(Gate):
    """Admits every request without computing the permissions that it needs."""

    def admit(
        self,
        caller: Caller,
        api: str,
        cost_bytes: int,
        permissions: Callable[[R], Iterable[Permission]],
        request: R,
    ) -> Admission:
        return ADMITTED

    def allows(self, caller: Caller, api: str, permission: Permission) -> bool:
        return True


OPEN: Final = OpenGate()
