"""UpdateFeatures (57): set the level of features that all brokers support, for ever.

Upgrade types (v1): 1 upgrade only, 2 and 3 downgrades that lose nothing or something. v0 says the last
two by `allow_downgrade`. Up to v1 the answer has a result for each feature; from v2 all updates succeed or none does.
"""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, boolean, int8, int16, int32, message, string


@dataclass(slots=True)
class UpdateFeaturesRequestFeatureUpdate:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


@message(ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class UpdateFeaturesRequest:
    timeout_ms: int = int32(default=60000)
    feature_updates: list[UpdateFeaturesRequestFeatureUpdate] = array(UpdateFeaturesRequestFeatureUpdate)
    validate_only: bool = boolean("1+")


@dataclass(slots=True)
class UpdateFeaturesResponseResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class UpdateFeaturesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[UpdateFeaturesResponseResult] = array(UpdateFeaturesResponseResult, "0-1")
