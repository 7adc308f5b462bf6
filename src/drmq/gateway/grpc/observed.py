"""What is observed about every call: its id, its trace, how long it took, and how it ended.

It is the same as for HTTP requests (`drmq.gateway.observed`). A call has the id of its metadata `x-request-id`, or a
new one, and its trailing metadata has it again. A call with a single response is timed, and traced below its
`traceparent`. A stream is open for hours, so that a duration or a span of it would say nothing: it is counted when it
ends, and while it is open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor

from drmq.gateway.observed import SLOW_S, CallCounters
from drmq.telemetry import request_ids, tracing

log = logging.getLogger("drmq.gateway")

ID_KEY: Final = request_ids.HEADER.lower()
_OK, _CANCELLED = "OK", "CANCELLED"
_PATIENT: Final = frozenset({"Poll", "Fetch"})
"""Methods whose calls wait for records."""


class Outcome:
    """How a call has ended: the name of its status."""

    def __init__(self) -> None:
        self.status = _CANCELLED


@asynccontextmanager
async def observed(method: MethodDescriptor, context: Any, counters: CallCounters) -> AsyncIterator[Outcome]:
    """Observe a call while it is carried out. What is done sets the outcome; a call that was cancelled has none."""
    metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    request_id = request_ids.accepted(metadata.get(ID_KEY))
    context.set_trailing_metadata(((ID_KEY, request_id),))
    is_stream = method.client_streaming or method.server_streaming
    name = f"{method.containing_service.name}/{method.name}"
    span = None
    if not is_stream:
        fields: dict[str, str | int] = {"rpc.system": "grpc", "rpc.method": name, "drmq.request_id": request_id}
        span = tracing.begin_request(name, fields, tracing.parse(metadata.get(tracing.HEADER)))
    outcome = Outcome()
    token = request_ids.current.set(request_id)
    counters.streams += is_stream
    began_ns = time.perf_counter_ns()
    try:
        with tracing.active(span):
            yield outcome
    finally:
        duration_us = (time.perf_counter_ns() - began_ns) // 1_000
        counters.streams -= is_stream
        counters.add(name, outcome.status, None if is_stream else duration_us)
        with tracing.active(span):
            _log(name, outcome.status, duration_us, is_slow=not is_stream and method.name not in _PATIENT)
        if span is not None:
            span.note("rpc.grpc.status", outcome.status)
            span.end(None if outcome.status == _OK else outcome.status)
        request_ids.current.reset(token)


def _log(name: str, status: str, duration_us: int, *, is_slow: bool) -> None:
    fields = {"method": name, "status": status, "duration_ms": duration_us // 1000}
    if is_slow and duration_us > SLOW_S * 1e6:
        log.info("a call took %.1f s", duration_us / 1e6, extra=fields)
    else:
        log.debug("a call is answered", extra=fields)
