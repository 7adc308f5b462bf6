"""ApiVersions (18): which APIs and versions a broker speaks.

The first request on most connections, and the only one that a broker answers even in a version it does not know: with a
v0 body and error 35. From v5 a client says which broker it believes to be connected to (KIP-1242), so that a broker
that took over the address of another can send it back to its bootstrap servers.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int16, int32, int64, message, string


@message(ApiKey.API_VERSIONS, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class ApiVersionsRequest:
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")
    cluster_id: str | None = string("5+", nullable="5+", default=None)
    node_id: int = int32("5+", default=-1)


@dataclass(slots=True)
class ApiVersionsResponseApi:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(slots=True)
class ApiVersionsResponseSupportedFeature:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(slots=True)
class ApiVersionsResponseFinalizedFeature:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message(ApiKey.API_VERSIONS, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersionsResponseApi] = array(ApiVersionsResponseApi)
    throttle_time_ms: int = int32("1+")
    supported_features: list[ApiVersionsResponseSupportedFeature] = array(
        ApiVersionsResponseSupportedFeature, "3+", tag=0
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[ApiVersionsResponseFinalizedFeature] = array(
        ApiVersionsResponseFinalizedFeature, "3+", tag=2
    )
    zk_migration_ready: bool = boolean("3+", tag=3)
