"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Up to v3 one key per request, with the answer in the response itself; from v4 many keys, each with
its own answer in `coordinators`. Key types: 0 group, 1 transactional id, 2 share group (v6).
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int8, int16, int32, message, string


@message(ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3)
@dataclass(slots=True)
class FindCoordinatorRequest:
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array("string", "4+")


@dataclass(slots=True)
class FindCoordinatorResponseCoordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3)
@dataclass(slots=True)
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", default=None)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[FindCoordinatorResponseCoordinator] = array(FindCoordinatorResponseCoordinator, "4+")
