"""DRMQ: a reliable message queue that any Kafka client can use, and its Python client.

    with drmq.Producer("localhost:9092") as producer:
        producer.send("orders", b"one")

    with drmq.Consumer("localhost:9092", "billing") as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            with message:
                charge(message.value)

This module is imported by every command and by every test that has DRMQ installed, so it imports nothing. Its names are
loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drmq import aio as aio
    from drmq import testing as testing
    from drmq.client.blocking import Consumer as Consumer
    from drmq.client.blocking import GroupConsumer as GroupConsumer
    from drmq.client.blocking import LeasedMessage as LeasedMessage
    from drmq.client.blocking import Producer as Producer
    from drmq.client.blocking import SingleConsumer as SingleConsumer
    from drmq.client.codecs import Codec as Codec
    from drmq.client.errors import ClientError as Error
    from drmq.client.errors import Closed as Closed
    from drmq.client.errors import DeadlineExceeded as DeadlineExceeded
    from drmq.client.errors import LeaseLost as LeaseLost
    from drmq.client.errors import Refused as Refused
    from drmq.client.errors import Unreachable as Unreachable
    from drmq.client.messages import Message as Message
    from drmq.client.messages import SendResult as SendResult
    from drmq.client.traces import continue_trace as continue_trace
    from drmq.client.worker import Backoff as Backoff
    from drmq.client.worker import Worker as Worker
    from drmq.client.worker import worker as worker

    __version__: str

_HOMES = {
    "Backoff": "worker",
    "Closed": "errors",
    "Codec": "codecs",
    "Consumer": "blocking",
    "DeadlineExceeded": "errors",
    "GroupConsumer": "blocking",
    "LeaseLost": "errors",
    "LeasedMessage": "blocking",
    "Message": "messages",
    "Producer": "blocking",
    "Refused": "errors",
    "SendResult": "messages",
    "SingleConsumer": "blocking",
    "Unreachable": "errors",
    "Worker": "worker",
    "continue_trace": "traces",
    "worker": "worker",
}
"""Names, and the modules of `drmq.client` that have them."""

__all__ = ["Error", "__version__", "aio", "testing", *_HOMES]


if not TYPE_CHECKING:
    # A type checker would take this for a promise that every name exists.
    def __getattr__(name: str) -> Any:
        import importlib

        if name in ("aio", "testing"):
            return importlib.import_module(f"drmq.{name}")
        if name in _HOMES:
            return getattr(importlib.import_module(f"drmq.client.{_HOMES[name]}"), name)
        if name == "Error":
            return importlib.import_module("drmq.client.errors").ClientError
        if name == "__version__":
            # The version is written down once, in pyproject.toml; reading it takes a few milliseconds.
            from importlib.metadata import version

            return version("drmq")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
