"""Spans for batches on their way from their arrival to their commit, if the node traces (`--tracing`).

The broker does not decode records: a batch is bytes that it checks and stores. It looks for the bytes that a header
`traceparent` of a record has, and begins a span for each trace that it finds and that is sampled. The spans end when
the batch is as safe as its producer wanted, and are below the span with which the producer sent the record.

What this costs is bounded: a number of batches each second, the first kilobytes of each, a few spans for a batch.
Compressed batches are not looked at. Without `--tracing` there is no `ProduceTraces`, and a batch costs a comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drmq.broker import Partition
from drmq.broker.clock import Clock
from drmq.model import ErrorCode
from drmq.telemetry.tracing import HEADER, Span, attributes_of, begin, parse

BATCHES_PER_SECOND: Final = 500
SEARCHED_BYTES: Final = 16_384
SPANS_PER_BATCH: Final = 8
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 0x07
_VALUE_BYTES = 55
# In a record, key and value of a header follow their lengths, which are numbers in zigzag form.
_FOUND = bytes([2 * len(HEADER)]) + HEADER.encode() + bytes([2 * _VALUE_BYTES])


def parents_in(batch: memoryview) -> list[bytes]:
    """The values of the first `traceparent` headers of a batch, each once."""
    if len(batch) <= _ATTRIBUTES_LOW_BYTE or batch[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK:
        return []
    data = bytes(batch[:SEARCHED_BYTES])
    found: dict[bytes, None] = {}
    at = data.find(_FOUND)
    while at >= 0 and len(found) < SPANS_PER_BATCH:
        begins = at + len(_FOUND)
        found[data[begins : begins + _VALUE_BYTES]] = None
        at = data.find(_FOUND, begins + _VALUE_BYTES)
    return list(found)


class ProduceTraces:
    """Begins and ends the spans of one node. Used on the event loop."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self._node_id = node_id
        self._clock = clock
        self._window_ms = 0
        self._left = 0

    def begin(self, partition: Partition, batch: memoryview | None, request_id: str) -> list[Span]:
        """The spans of a batch that is about to be appended."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._window_ms >= 1_000:
            self._window_ms, self._left = now_ms, BATCHES_PER_SECOND
        if not batch or not self._left:
            return []
        self._left -= 1
        spans = []
        for text in parents_in(batch):
            attributes = attributes_of(partition.topic, partition.index, None, "receive")
            attributes |= {"drmq.node_id": self._node_id, "drmq.request_id": request_id}
            span = begin(f"commit {partition.topic}", "SERVER", attributes, parse(text))
            if span is not None:
                spans.append(span)
        return spans

    def end(self, spans: Sequence[Span], base_offset: int, error: ErrorCode) -> None:
        """The batch is safe, or it is known that it will not be."""
        for span in spans:
            if error is ErrorCode.NONE:
                span.note("drmq.base_offset", base_offset)
                span.end()
            else:
                span.end(error.name)
