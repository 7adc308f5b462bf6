"""`-X NAME=VALUE`: properties of the Kafka client, by the names that librdkafka gives them.

`produce` and `consume` hand them to librdkafka, over the values that these commands choose themselves. The other
commands use DRMQ's own small client, which has only `client.id` in common with librdkafka. All commands check the
properties in the same way, so that a typing mistake is found wherever it is made, and nothing is ignored silently that
would be a promise: encryption and authentication do not exist yet.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import click

OWN = {
    "bootstrap.servers": "Use -b.",
    "metadata.broker.list": "Use -b.",
    "group.id": "Use -g of `drmq consume`.",
    "enable.auto.commit": "`drmq consume -g` commits what it has printed.",
    "enable.auto.offset.store": "`drmq consume -g` commits what it has printed.",
    "enable.partition.eof": "`drmq consume` needs it to find the end of a topic.",
    "transactional.id": "There are no transactions yet.",
    "logger": "It is not a property of librdkafka.",
    "default.topic.config": "Give the properties themselves.",
}
"""Properties that commands set themselves, and why they cannot be set."""

_SECURITY = ("sasl.", "ssl.", "enable.sasl.", "enable.ssl.", "oauthbearer_")

WELL_KNOWN = (
    "acks",
    "auto.offset.reset",
    "batch.num.messages",
    "batch.size",
    "check.crcs",
    "client.id",
    "client.rack",
    "compression.level",
    "compression.type",
    "debug",
    "enable.idempotence",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "isolation.level",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "message.max.bytes",
    "message.timeout.ms",
    "partition.assignment.strategy",
    "partitioner",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queued.max.messages.kbytes",
    "receive.message.max.bytes",
    "request.timeout.ms",
    "retries",
    "retry.backoff.ms",
    "security.protocol",
    "session.timeout.ms",
    "socket.keepalive.enable",
    "socket.timeout.ms",
    "statistics.interval.ms",
    "sticky.partitioning.linger.ms",
)
"""Names to suggest for a mistyped one. librdkafka knows many more, and has no call that lists them."""


def checked(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties, if librdkafka accepts each of them. Raises `click.BadParameter`."""
    for name, value in properties.items():
        if name in OWN:
            raise _bad(f"{name} cannot be set: {OWN[name]}")
        if name.startswith(_SECURITY) or (name == "security.protocol" and value.lower() != "plaintext"):
            raise _bad(f"{name} cannot be set: DRMQ has no encryption and no authentication yet.")
        _try(name, value)
    return dict(properties)


def _try(name: str, value: str) -> None:
    """Let librdkafka check one property. Together with others it may still be refused."""
    from confluent_kafka import KafkaException, Producer

    from drmq.server.cli.kafka_client import quiet_logger

    try:
        Producer({"logger": quiet_logger(), "bootstrap.servers": "", name: value})
    except KafkaException as error:
        said = error.args[0].str()
        if "No such configuration property" in said:
            close = difflib.get_close_matches(name, WELL_KNOWN, n=1)
            guess = f" Did you mean {close[0]}?" if close else ""
            raise _bad(
                f"{name} is not a property of the Kafka client.{guess} Allowed are the properties of librdkafka."
            ) from None
        if said.startswith(("Invalid value", "Configuration property")):
            raise _bad(f"{name}={value}: {said.strip()}.") from None
        # Valid, but not on its own; the command that uses it reports what it conflicts with.
    except (TypeError, ValueError) as error:
        raise _bad(f"{name}={value}: {error}.") from None


def combined(refused: Any, properties: Mapping[str, str]) -> click.BadParameter:
    """The error for properties that librdkafka refuses in combination with those of a command."""
    given = ", ".join(f"{name}={value}" for name, value in properties.items())
    return _bad(f"{given}: {refused.args[0].str().strip()}.")


def _bad(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint="-X")
