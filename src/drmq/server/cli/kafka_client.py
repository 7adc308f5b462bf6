"""What `produce` and `consume` share for using confluent-kafka: settings, log handling and error conversion."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from drmq.client import ClientError
from drmq.client.errors import RETRIABLE
from drmq.client.topics import topic_refusal
from drmq.model import ErrorCode

if TYPE_CHECKING:
    from drmq.server.cli.options import ClusterChoice

_UNKNOWN_LOCALLY = {-188, -190}
"""librdkafka's own codes for a topic or a partition that does not exist."""


def settings(cluster: ClusterChoice, **more: Any) -> dict[str, Any]:
    """The configuration of a client for this cluster.

    librdkafka would print each lost connection to standard error, in the middle of our output. Errors that matter are
    also returned by a call.
    """
    quiet = logging.getLogger("drmq.librdkafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return {"bootstrap.servers": cluster.bootstrap, "client.id": "drmq-cli", "logger": quiet} | more


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
