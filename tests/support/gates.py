"""Gates that a test can look into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from drmq.broker.services.caller import Caller
from drmq.broker.services.gate import Admission, Gate, Permission, ResourceType
from drmq.model import ApiError, ErrorCode

R = TypeVar("R")


class DenyingGate(Gate):
    """Lets nobody do anything, also not what needs no permission."""

    def authorise(self, caller: Caller, api: str, permissions: Sequence[Permission]) -> Iterable[Permission]:
        if not permissions:
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{caller.principal} may not ask for {api}")
        return permissions


class RecordingGate(Gate):
    """Lets everyone do everything, and remembers who asked for what and which permissions that needed."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Caller]] = []
        self.permissions: list[Permission] = []

    def admit(
        self,
        caller: Caller,
        api: str,
        cost_bytes: int,
        permissions: Callable[[R], Iterable[Permission]],
        request: R,
    ) -> Admission:
        self.seen.append((api, caller))
        return super().admit(caller, api, cost_bytes, permissions, request)

    def authorise(self, caller: Caller, api: str, permissions: Sequence[Permission]) -> Iterable[Permission]:
        self.permissions += permissions
        return ()


class NamedGate(Gate):
    """Refuses what has one of these names, and knows nothing of the others."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def authorise(self, caller: Caller, api: str, permissions: Sequence[Permission]) -> Iterable[Permission]:
        kinds = (ResourceType.TOPIC, ResourceType.GROUP)
        return [each for each in permissions if each.resource_type in kinds and each.name in self._names]


class ThrottlingGate(Gate):
    """Has every caller wait, and remembers what requests cost."""

    def __init__(self, throttle_ms: int) -> None:
        self._throttle_ms = throttle_ms
        self.costs: list[tuple[str, int]] = []

    def throttle(self, caller: Caller, api: str, cost_bytes: int) -> int:
        self.costs.append((api, cost_bytes))
        return self._throttle_ms


class ClosedGate(Gate):
    """Knows nobody."""

    def authenticate(self, caller: Caller) -> None:
        raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{caller.principal} is not known")
