"""Drivers for unmodified Kafka clients, so that one test runs with each of them.

A driver offers the few verbs that every client has: produce, consume, join a group. A test written against `Client`
runs with confluent-kafka, kafka-python, aiokafka and kcat, and a record written by one can be read by another. What
only one library can do is tested with that library directly. A driver adds no behaviour: what the client does with
the broker's answer is what is tested.
"""

from support.clients.aio import AiokafkaClient
from support.clients.base import (
    CODECS,
    RECORD_SIZE_BYTES_MAX,
    SESSION_TIMEOUT_MS,
    Acks,
    Client,
    Codec,
    Delivery,
    Headers,
    KafkaFailure,
    Member,
    Partition,
    Received,
    Record,
    content,
)
from support.clients.confluent import ConfluentClient
from support.clients.kafka_python import KafkaPythonClient
from support.clients.kcat import KcatClient

CLIENTS: dict[str, type[Client]] = {
    client.name: client for client in (ConfluentClient, KafkaPythonClient, AiokafkaClient, KcatClient)
}

__all__ = [
    "CLIENTS",
    "CODECS",
    "RECORD_SIZE_BYTES_MAX",
    "SESSION_TIMEOUT_MS",
    "Acks",
    "AiokafkaClient",
    "Client",
    "Codec",
    "ConfluentClient",
    "Delivery",
    "Headers",
    "KafkaFailure",
    "KafkaPythonClient",
    "KcatClient",
    "Member",
    "Partition",
    "Received",
    "Record",
    "content",
]
