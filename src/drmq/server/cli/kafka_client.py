"""What `produce` and `consume` share for using confluent-kafka: settings and error conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drmq.client.librdkafka import as_client_error as as_client_error
from drmq.client.librdkafka import quiet_logger as quiet_logger
from drmq.server.cli.options import DEFAULT_CLIENT_ID, ClusterChoice

T = TypeVar("T")

MESSAGE_BYTES_MAX = 100_000_000
"""How large a record may be here. Brokers decide what they accept; a larger request would break the connection to a
broker with the default `request_bytes_max`, and librdkafka would send it again and again."""


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
