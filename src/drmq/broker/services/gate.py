"""The gate: the one place where requests are checked before they are carried out.

Every door shows each request to the gate once, after it was parsed and before anything is done. So does a node that
carries out a request which another node has passed on. The gate takes a request through three stages, in this order:

1. *authenticate*: is the caller known? A caller that is not is turned away, whatever it asks.
2. *authorise*: may it do this? A request needs permissions; the gate says which of them are refused. A request with
   several topics or groups is refused by entry, so the others in it are carried out.
3. *throttle*: how long is the caller to wait before its next request?

`Gate` is the place for checks: subclass it and replace a stage. As it is, each stage lets everything pass. A broker
starts with `OPEN`, which gives the same answers without asking what a request needs, since the gate is passed by every
Produce and Fetch.

What a request needs is the door's to say (`kafka/permissions.py`), in Kafka's terms: an operation on a resource.
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
    """What operations are done on, with the numbers of Kafka's access control."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER, as Kafka calls it."""

_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Permission(NamedTuple):
    """To do one operation on one resource."""

    operation: Operation
    resource_type: ResourceType
    name: str

    @property
    def refusal(self) -> ErrorCode:
        """The code of a request that lacks this permission."""
        return _REFUSALS[self.resource_type]


def on_topic(operation: Operation, name: str) -> Permission:
    return Permission(operation, ResourceType.TOPIC, name)


def on_group(operation: Operation, name: str) -> Permission:
    return Permission(operation, ResourceType.GROUP, name)


def on_cluster(operation: Operation) -> Permission:
    return Permission(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def single(permission: Permission) -> Iterable[Permission]:
    """For `Gate.admit`: a request that is given by the one permission it needs."""
    return (permission,)


def refusal(caller: Caller, permission: Permission) -> ApiError:
    """What a caller is told that lacks a permission."""
    operation, kind, name = permission
    return ApiError(
        permission.refusal,
        f"{caller.principal} lacks {operation.name} on {kind.name.lower().replace('_', ' ')} {name!r}",
    )


class Admission(NamedTuple):
    """What the gate has decided about one request."""

    refused: frozenset[Permission]
    """Of the permissions that the request needs, those that the caller does not have."""
    throttle_ms: int = 0
    """How long the caller is to wait before its next request."""


ADMITTED: Final = Admission(frozenset())
"""Everything is allowed, and nothing is to be waited for."""


class Gate:
    """Checks requests, one stage after the other. Lives on the event loop; a stage must not wait."""

    def authenticate(self, caller: Caller) -> None:
        """Raise `ApiError` if the caller must not be served at all."""

    def authorise(self, caller: Caller, api: str, permissions: Sequence[Permission]) -> Iterable[Permission]:
        """Those of `permissions` that the caller does not have. Raise `ApiError` to refuse the request as a whole."""
        return ()

    def throttle(self, caller: Caller, api: str, cost_bytes: int) -> int:
        """How many milliseconds the caller is to wait before its next request.

        `cost_bytes` is the request's size; 0 for one that another node has passed on, where its cost was counted.
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
        """Take one request through the stages. `permissions(request)` says what it needs.

        Raises `ApiError` for a request that is refused as a whole.
        """
        self.authenticate(caller)
        refused = frozenset(self.authorise(caller, api, tuple(dict.fromkeys(permissions(request)))))
        return Admission(refused, self.throttle(caller, api, cost_bytes))

    def allows(self, caller: Caller, api: str, permission: Permission) -> bool:
        """Whether a caller whose request was admitted may see this, for requests that list whatever there is."""
        return not tuple(self.authorise(caller, api, (permission,)))


class OpenGate(Gate):
    """Lets everyone do everything, and does not ask what that is."""

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
