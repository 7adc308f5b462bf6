"""What is observed about every HTTP request: its id, its trace, how long it took, and whether it failed.

A request has an id: that of its `X-Request-Id`, if it is short and plain, or a new one. The answer has it in the same
header, problems have it in their body, and so does every log line while the request is carried out.

- A request that ends with a status of 500 or more is logged as a warning, also if its caller went away.
- A request that takes long is logged, too. Web sockets and requests that wait for records are not meant.
- All others are logged at level DEBUG.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drmq.gateway.endpoint import ROUTE
from drmq.model.counters import Histogram, Sample, sample_of
from drmq.telemetry import request_ids, tracing
from drmq.telemetry.process_usage import descriptor_count, resident_bytes

log = logging.getLogger("drmq.gateway")

OTHER: Final = "(other)"
SLOW_S: Final = 2.0
_PATIENT: Final = ("/poll", "/tail")
"""Ends of routes whose requests wait for records."""
_PATH_MAX = 300
_NO_ANSWER = 499
"""The status of a request whose client went away before it was answered, as others log it."""


class HttpCounters:
    """What was counted about requests. Lives on the event loop."""

    def __init__(self) -> None:
        self._began_ns = time.monotonic_ns()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._durations_us: dict[str, Histogram] = {}

    def add(self, route: str, status: int, duration_us: int) -> None:
        self._counts[route, f"{status // 100}xx"] += 1
        self._durations_us.setdefault(route, Histogram()).add(duration_us)

    def samples(self) -> Iterator[Sample]:
        for (route, status), count in sorted(self._counts.items()):
            yield Sample("drmq_gateway_requests_total", count, (("route", route), ("status", status)))
        for route, durations_us in sorted(self._durations_us.items()):
            yield sample_of("drmq_gateway_request_duration_us", durations_us, (("route", route),))
        yield Sample("drmq_gateway_cpu_us_total", time.process_time_ns() // 1_000)
        yield Sample("drmq_gateway_resident_bytes", resident_bytes())
        yield Sample("drmq_gateway_descriptors", descriptor_count())
        yield Sample("drmq_gateway_uptime_us", (time.monotonic_ns() - self._began_ns) // 1_000)


class CallCounters:
    """What was counted about calls over gRPC. Lives on the event loop."""

    def __init__(self) -> None:
        self.streams = 0
        """Streams that are open."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._durations_us: dict[str, Histogram] = {}

    def add(self, method: str, status: str, duration_us: int | None) -> None:
        """A call has ended; `duration_us` is None for a stream."""
        self._counts[method, status] += 1
        if duration_us is not None:
            self._durations_us.setdefault(method, Histogram()).add(duration_us)

    def samples(self) -> Iterator[Sample]:
        for (method, status), count in sorted(self._counts.items()):
            yield Sample("drmq_gateway_calls_total", count, (("method", method), ("status", status)))
        for method, durations_us in sorted(self._durations_us.items()):
            yield sample_of("drmq_gateway_call_duration_us", durations_us, (("method", method),))
        yield Sample("drmq_gateway_streams", self.streams)


class Observed:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, counters: HttpCounters) -> None:
        self._app = app
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_ids.accepted(headers.get(request_ids.HEADER))
        token = request_ids.current.set(request_id)
        try:
            if scope["type"] == "http":
                await self._serve(scope, receive, send, headers, request_id)
            else:
                await self._app(scope, receive, send)
        finally:
            request_ids.current.reset(token)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers, request_id: str) -> None:
        status = _NO_ANSWER
        id_header = (request_ids.HEADER.lower().encode(), request_id.encode())

        async def with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], id_header]
            await send(message)

        method, path = scope["method"], scope["path"][:_PATH_MAX]
        fields: dict[str, str | int] = {"http.request.method": method, "url.path": path, "drmq.request_id": request_id}
        span = tracing.begin_request(f"{method} {path}", fields, tracing.parse(headers.get(tracing.HEADER)))
        began_ns = time.perf_counter_ns()
        try:
            with tracing.active(span):
                await self._app(scope, receive, with_id)
        finally:
            duration_us = (time.perf_counter_ns() - began_ns) // 1_000
            route = scope.get(ROUTE, OTHER)
            self._counters.add(route, status, duration_us)
            with tracing.active(span):
                _log(method, path, route, status, duration_us)
            if span is not None:
                if route != OTHER:
                    span.rename(route)
                    span.note("http.route", route.partition(" ")[2])
                span.note("http.response.status_code", status)
                span.end(f"status {status}" if status >= 500 else None)


def _log(method: str, path: str, route: str, status: int, duration_us: int) -> None:
    fields = {"method": method, "path": path, "status": status, "duration_ms": duration_us // 1000}
    if status >= 500:
        log.warning("a request failed", extra=fields)
    elif duration_us > SLOW_S * 1e6 and not route.endswith(_PATIENT):
        log.info("a request took %.1f s", duration_us / 1e6, extra=fields)
    else:
        log.debug("a request is answered", extra=fields)
