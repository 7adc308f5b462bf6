"""DescribeEvents (12004): the last events of this node. An API of DRMQ alone, for those who watch a cluster."""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.wire.messages.describe_events import (
    DescribeEventsRequest,
    DescribeEventsResponse,
    DescribeEventsResponseEvent,
)


def handle(context: Context, request: DescribeEventsRequest) -> DescribeEventsResponse:
    events = context.services.events
    return DescribeEventsResponse(
        node_id=context.broker.node_id,
        started_ms=events.started_ms,
        http=events.http,
        grpc=events.grpc,
        events=[
            DescribeEventsResponseEvent(*event) for event in events.after(request.after_sequence, request.events_max)
        ],
    )
