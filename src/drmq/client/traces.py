"""Continuing the trace of a message where it is worked on."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from drmq.client.messages import Message
from drmq.telemetry import tracing


def continue_trace(message: Message[Any]) -> AbstractContextManager[tracing.Span | None]:
    """Work on a message within a span of OpenTelemetry, below the span that sent it.

        for message in consumer:
            with message, drmq.continue_trace(message):
                charge(message.value)

    Does nothing if the message has no sampled trace, or the program does not use OpenTelemetry. Workers do it by
    themselves.
    """
    if not tracing.is_loaded():
        return tracing.untraced()
    return tracing.processing(message.topic, message.partition, message.offset, message.headers)
