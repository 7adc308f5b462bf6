"""Traces of OpenTelemetry, where they are wanted.

A record carries its trace in the header `traceparent`, as W3C defines it for HTTP. The producer adds it, if a span is
current where the record is sent. Consumers and workers continue it. `docs/decisions/0023-traces.md` says what a span of
DRMQ covers, and why the broker makes some for batches and none for records.

OpenTelemetry is an extra, `drmq[otel]`. A program that traces has imported it; so has a node or gateway that was
started with `--tracing`, by `start`. Everywhere else nothing of it is imported, and every function here returns at
once.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, NamedTuple

HEADER: Final = "traceparent"
SCOPE: Final = "drmq"
_SAMPLED = 0x01
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_VERSION_0 = "00"
_LENGTH = 55


class TraceParent(NamedTuple):
    """Where a trace is continued."""

    trace_id: int
    span_id: int
    flags: int

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & _SAMPLED)

    def __str__(self) -> str:
        return f"{_VERSION_0}-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def parse(text: str | bytes | None) -> TraceParent | None:
    """The value of a header; None if it is none that this version of the standard knows."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    if text is None or len(text) < _LENGTH:
        return None
    found = _FORM.match(text)
    if found is None or (len(text) > _LENGTH and (text.startswith(_VERSION_0) or text[_LENGTH] != "-")):
        return None
    parent = TraceParent(int(found[1], 16), int(found[2], 16), int(found[3], 16))
    return parent if parent.trace_id and parent.span_id else None


def parent_of(headers: Iterable[tuple[str, bytes | str | None]] | None) -> TraceParent | None:
    """The trace that a record belongs to."""
    for name, value in headers or ():
        if name == HEADER:
            return parse(value)
    return None


def _api() -> Any:
    """The API of OpenTelemetry, if this process has imported it."""
    return sys.modules.get("opentelemetry.trace")


def current() -> TraceParent | None:
    """The current span, if there is one."""
    api = _api()
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    return TraceParent(context.trace_id, context.span_id, int(context.trace_flags)) if context.is_valid else None


class Span:
    """A span that was begun. It ends once; later calls have no effect."""

    __slots__ = ("_span", "parent")

    def __init__(self, span: Any) -> None:
        self._span = span
        context = span.get_span_context()
        self.parent = TraceParent(context.trace_id, context.span_id, int(context.trace_flags))
        """For what happens because of this span."""

    def note(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def end(self, error: str | None = None) -> None:
        api = _api()
        if error is not None and api is not None:
            self._span.set_status(api.Status(api.StatusCode.ERROR, error))
        self._span.end()


def begin(
    name: str,
    kind: str,
    attributes: dict[str, str | int],
    parent: TraceParent | None = None,
    start_ns: int | None = None,
) -> Span | None:
    """Begin a span below `parent`, or below the current one; None if nobody traces, or this trace is not sampled.

    `kind` is the name of a kind of OpenTelemetry, such as PRODUCER.
    """
    api = _api()
    if api is None:
        return None
    above = parent or current()
    if above is None or not above.is_sampled:
        return None
    return _begin(api, name, kind, attributes, parent, start_ns)


def begin_request(name: str, attributes: dict[str, str | int], parent: TraceParent | None) -> Span | None:
    """Begin the span of a request: a new trace, if its client has none. None if nobody traces."""
    api = _api()
    return None if api is None else _begin(api, name, "SERVER", attributes, parent, None)


def _begin(
    api: Any, name: str, kind: str, attributes: dict[str, str | int], parent: TraceParent | None, start_ns: int | None
) -> Span:
    context = None
    if parent is not None:
        remote = api.SpanContext(parent.trace_id, parent.span_id, True, api.TraceFlags(parent.flags))
        context = api.set_span_in_context(api.NonRecordingSpan(remote))
    return Span(
        api.get_tracer(SCOPE).start_span(
            name, context=context, kind=api.SpanKind[kind], attributes=attributes, start_time=start_ns
        )
    )


def is_loaded() -> bool:
    """Whether this process may trace: it has imported OpenTelemetry."""
    return _api() is not None


def begin_sending(topic: str, partition: int | None) -> Span | None:
    """Begin the span of a record that is sent, until it is committed. None if nobody traces, or not this."""
    if _api() is None:
        return None
    return begin(f"send {topic}", "PRODUCER", attributes_of(topic, partition, None, "send"))


@contextmanager
def active(span: Span | None) -> Iterator[None]:
    """Make a span the current one. It is not ended."""
    api = _api()
    if span is None or api is None:
        yield
        return
    with api.use_span(span._span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        yield


def untraced() -> AbstractContextManager[Span | None]:
    """Stands for a span where there is none."""
    return nullcontext()


@contextmanager
def processing(topic: str, partition: int, offset: int, headers: Iterable[tuple[str, Any]]) -> Iterator[Span | None]:
    """A span for the work on one record, below the span that sent it; it is current meanwhile. None without a trace."""
    parent = parent_of(headers)
    span = None
    if parent is not None:
        span = begin(f"process {topic}", "CONSUMER", attributes_of(topic, partition, offset, "process"), parent)
    if span is None:
        yield None
        return
    try:
        with active(span):
            yield span
    except BaseException as error:
        span.end(f"{type(error).__name__}: {error}")
        raise
    span.end()


def attributes_of(topic: str, partition: int | None, offset: int | None, operation: str) -> dict[str, str | int]:
    """What the spans about a record have, by the names of OpenTelemetry's conventions."""
    found: dict[str, str | int] = {
        "messaging.system": "drmq",
        "messaging.destination.name": topic,
        "messaging.operation.type": operation,
    }
    if partition is not None:
        found["messaging.destination.partition.id"] = str(partition)
    if offset is not None:
        found["messaging.kafka.offset"] = offset
    return found


class PackageMissing(Exception):
    """OpenTelemetry is not installed."""


def start(service: str, attributes: dict[str, str | int]) -> Any:
    """Export the spans of this process over OTLP. Returns what `stop` takes. Raises `PackageMissing`.

    The variables of OpenTelemetry (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME ...) apply.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise PackageMissing(
            f"traces need the package {error.name}; `pip install 'drmq[otel]'` installs what is missing"
        ) from None
    # The variables of OpenTelemetry override what is given here.
    resource = Resource({"service.name": service, **attributes}).merge(Resource.create())
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": service}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    # The exporter's client logs each request, at level DEBUG, into the log of a process that is being debugged.
    logging.getLogger("urllib3").setLevel(logging.INFO)
    trace.set_tracer_provider(provider)
    return provider


def stop(provider: Any) -> None:
    """Export what is left, and end."""
    if provider is not None:
        provider.shutdown()
