"""A client that wants to authenticate is told at once, in its own words, that there is no authentication."""

import asyncio
import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from support.polling import eventually

LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"}


def test_librdkafka_reports_that_authentication_failed(bootstrap: str) -> None:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {**LOGIN, "security.protocol": "SASL_PLAINTEXT", "error_cb": errors.append}
    admin = AdminClient({"bootstrap.servers": bootstrap, **settings})
    eventually(lambda: admin.poll(0.1) or errors, bool, what="an error callback")
    assert errors[0].code() == KafkaError._AUTHENTICATION, errors
    assert "SASL" in errors[0].str()


def test_aiokafka_raises(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError as AioKafkaError

    async def connect() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="secret",
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with caplog.at_level(logging.ERROR), pytest.raises(AioKafkaError):
        asyncio.run(connect())
    assert "IllegalSaslStateError" in caplog.text
