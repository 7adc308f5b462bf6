"""UnregisterBroker (64): take a broker out of the cluster for good.

DRMQ drains the broker first: the response says that draining has begun, and the broker leaves the cluster once its last
replica has been moved to another broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import int16, int32, message, string


@message(ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class UnregisterBrokerRequest:
    broker_id: int = int32()


@message(ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
