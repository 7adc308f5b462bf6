"""What `produce` and `consume` share for using confluent-kafka: settings, log handling and error conversion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drmq.client import ClientError
from drmq.client.errors import RETRIABLE
from drmq.client.topics import topic_refusal
from drmq.model import ErrorCode
from drmq.server.cli.options import DEFAULT_CLIENT_ID, ClusterChoice

T = TypeVar("T")

_UNKNOWN_LOCALLY = {-188, -190}
"""librdkafka's own codes for a topic or a partition that does not exist."""


MESSAGE_BYTES_MAX = 100_000_000
"""How large a record may be here. Brokers decide what they accept; a larger request would break the connection to a
broker with the default `request_bytes_max`, and librdkafka would send it again and again."""


def quiet_logger() -> logging.Logger:
    """librdkafka would print each lost connection to standard error, in the middle of our output. Errors that matter
    are also returned by a call.
    """
    quiet = logging.getLogger("drmq.librdkafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return quiet


def open_client(kind: Callable[[dict[str, Any]], T], cluster: ClusterChoice, chosen: Mapping[str, Any]) -> T:
    """A `Producer` or `Consumer` with the properties that a command has chosen, and over them those of the user."""
    from confluent_kafka import KafkaException

    from drmq.server.cli.properties import combined

    common: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "client.id": DEFAULT_CLIENT_ID}
    if "debug" not in cluster.properties:
        common["logger"] = quiet_logger()
    try:
        return kind(common | dict(chosen) | cluster.properties)
    except KafkaException as error:
        if not cluster.properties:
            raise
        raise combined(error, cluster.properties) from None


def as_client_error(error: Any, topic: str, partition: int | None = None) -> ClientError:
    """Convert a `KafkaError` to a `ClientError`."""
    number = error.code()
    if number in _UNKNOWN_LOCALLY:
        number = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if number > 0:
        return topic_refusal(number, topic, None, partition=partition, doing=f"be used: {error.str()}")
    # Negative codes are librdkafka's own: no connection, timeout, a bad argument.
    code = ErrorCode.REQUEST_TIMED_OUT if error.name() in ("_TIMED_OUT", "_MSG_TIMED_OUT") else None
    return ClientError(f"Topic `{topic}`: {error.str()}", code=code, retriable=code in RETRIABLE)
