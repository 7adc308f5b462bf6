"""A collector of OpenTelemetry for tests: takes spans over OTLP and HTTP, as protobuf, and keeps them."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it was exported. Ids are hexadecimal; the parent's is empty if there is none."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    service: str
    kind: int
    failed: bool
    duration_ns: int
    attributes: dict[str, Any] = field(hash=False)


class Collector:
    """Listens on a free port of loopback. Use it as a context manager."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self._lock = threading.Lock()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                is_known = self.path == "/v1/traces"
                if is_known:
                    collector._take(body)
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process exports its spans here, soon."""
        port = self._server.server_address[1]
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def _take(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            service = _attributes(resource.resource.attributes).get("service.name", "")
            found = [
                CollectedSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    str(service),
                    span.kind,
                    span.status.code == 2,
                    span.end_time_unix_nano - span.start_time_unix_nano,
                    _attributes(span.attributes),
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            with self._lock:
                self.spans += found

    def of_trace(self, trace_id: str) -> dict[str, CollectedSpan]:
        """The spans of a trace so far, by name."""
        with self._lock:
            return {span.name: span for span in self.spans if span.trace_id == trace_id}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _attributes(entries: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value") or "string_value") for entry in entries}
