"""Using confluent-kafka: its log, and its errors as ours."""

from __future__ import annotations

import logging
from typing import Any

from drmq.client.errors import RETRIABLE, ClientError, DeadlineExceeded, Unreachable
from drmq.client.topics import topic_refusal
from drmq.model import ErrorCode

_UNKNOWN_LOCALLY = {-188, -190}
"""librdkafka's own codes for a topic or a partition that does not exist."""
_TIMED_OUT = ("_TIMED_OUT", "_MSG_TIMED_OUT")
_UNREACHABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")


def quiet_logger() -> logging.Logger:
    """librdkafka would print each lost connection to standard error, in the middle of our output. Errors that matter
    are also returned by a call.
    """
    quiet = logging.getLogger("drmq.librdkafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return quiet


def is_c_text(text: str) -> bool:
    """Whether a text is UTF-8 without a NUL.

    confluent-kafka does not check the names of headers, nor properties: half a surrogate pair ends the process with a
    signal, and a text is cut off at a NUL.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def checked_properties(properties: dict[str, Any]) -> dict[str, Any]:
    """The properties of a client. Raises `ClientError` for text in them that librdkafka cannot take."""
    for name, value in properties.items():
        if isinstance(value, dict):
            checked_properties(value)
        for text in (name, value):
            if isinstance(text, str) and not is_c_text(text):
                raise ClientError(f"The property {name!r} cannot be set: it is not UTF-8, or has a NUL")
    return properties


def as_client_error(error: Any, topic: str, partition: int | None = None) -> ClientError:
    """Convert a `KafkaError` to a `ClientError`."""
    number = error.code()
    if number in _UNKNOWN_LOCALLY:
        number = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if number > 0:
        return topic_refusal(number, topic, None, partition=partition, doing=f"be used: {error.str()}")
    # Negative codes are librdkafka's own: no connection, timeout, a bad argument.
    if error.name() in _TIMED_OUT:
        code = ErrorCode.REQUEST_TIMED_OUT
        return DeadlineExceeded(f"Topic `{topic}`: {error.str()}", code=code, retriable=code in RETRIABLE)
    if error.name() in _UNREACHABLE:
        return Unreachable(f"Topic `{topic}`: {error.str()}")
    return ClientError(f"Topic `{topic}`: {error.str()}")
