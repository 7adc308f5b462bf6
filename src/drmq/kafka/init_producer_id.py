"""InitProducerId (22): an id for an idempotent producer.

Each call without a transactional id gives a new id with epoch 0: a producer that asks again after an
error starts afresh, and its old sequence numbers are of no account. Transactional ids are refused
with the code that clients take as final: there are no transactions.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode
from drmq.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = await context.services.producer_ids.new()
    except ApiError:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
