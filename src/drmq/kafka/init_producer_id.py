"""InitProducerId (22): assign an id to an idempotent producer.

Each request without a transactional id gets a new id with epoch 0. A producer that sends it again after an error
therefore starts with new sequence numbers, and its old ones no longer matter. An id that it sends without an epoch, or
an epoch without an id, is refused as in Kafka. There are no transactions, so transactional ids are refused with the
error code that clients treat as final.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode
from drmq.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) is not (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await context.services.producer_ids.new()
    except ApiError:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
