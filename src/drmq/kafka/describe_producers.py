"""DescribeProducers (61): the idempotent producers that a partition remembers, with their last sequence numbers.

Every replica answers, as in Kafka, for the part of the log that it has. There are no transactions, so no producer has
an open one. The time is that of the last batch by the broker's clock; Kafka's is the batch's own.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.model import ApiError
from drmq.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseProducer,
    DescribeProducersResponseTopic,
)

_NO_COORDINATOR_EPOCH = -1


def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    asked = each_once(((topic.name, topic.partition_indexes) for topic in request.topics), int)
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponseTopic(name, [_describe(context, name, index) for index in indexes])
            for name, indexes in asked.items()
        ]
    )


def _describe(context: Context, topic: str, index: int) -> DescribeProducersResponsePartition:
    try:
        producers = context.services.lookups.producers(topic, index)
    except ApiError as error:
        return DescribeProducersResponsePartition(index, error.code, error.message)
    return DescribeProducersResponsePartition(
        index,
        active_producers=[
            DescribeProducersResponseProducer(
                producer_id, known.epoch, known.batches[-1].last_sequence, known.last_seen_ms, _NO_COORDINATOR_EPOCH
            )
            for producer_id, known in producers.items()
        ],
    )
