"""FaultLab (12010): cuts this node from its peers, for experiments. An API of DRMQ alone."""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import ApiError
from drmq.wire.messages.fault_lab import FaultLabRequest, FaultLabResponse


def handle(context: Context, request: FaultLabRequest) -> FaultLabResponse:
    node_id = context.broker.node_id
    try:
        is_cut = context.services.fault_lab.act(None if request.cut < 0 else request.cut > 0, request.note)
    except ApiError as error:
        return FaultLabResponse(error_code=error.code, error_message=error.message, node_id=node_id)
    return FaultLabResponse(node_id=node_id, is_cut=is_cut)
