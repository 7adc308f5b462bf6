"""DescribeCounters (12000): the counters of this node. An API of DRMQ alone, for `drmq debug counters`.

Kafka has no request for this: its brokers publish their metrics by JMX. A request of the same protocol needs no second
port, passes the same gate, and reaches every node that a client can reach. Clients ignore api keys that they do not
know.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model.counters import COUNTERS
from drmq.wire.messages.describe_counters import (
    DescribeCountersRequest,
    DescribeCountersResponse,
    DescribeCountersResponseCounter,
    DescribeCountersResponseLabel,
)


def handle(context: Context, request: DescribeCountersRequest) -> DescribeCountersResponse:
    context.services.counters.refresh()
    return DescribeCountersResponse(
        node_id=context.broker.node_id,
        counters=[
            DescribeCountersResponseCounter(
                sample.name,
                COUNTERS[sample.name].kind,
                [DescribeCountersResponseLabel(*label) for label in sample.labels],
                sample.value,
                list(sample.buckets),
            )
            for sample in context.services.counters.read(request.prefix)
        ],
    )
