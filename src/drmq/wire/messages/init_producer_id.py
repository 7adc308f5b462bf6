"""InitProducerId (22): an id and an epoch for an idempotent or transactional producer.

From v3 a producer may send the id and epoch that it has, to have the epoch raised after an error (KIP-360); -1 means
that it has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import int16, int32, int64, message, string


@message(ApiKey.INIT_PRODUCER_ID, versions=(0, 5), flexible=2)
@dataclass(slots=True)
class InitProducerIdRequest:
    transactional_id: str | None = string(nullable="0+", default=None)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@message(ApiKey.INIT_PRODUCER_ID, versions=(0, 5), flexible=2)
@dataclass(slots=True)
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
