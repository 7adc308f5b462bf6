"""SaslHandshake and SaslAuthenticate: refused with Kafka's code for a listener without SASL, on an open connection."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire import ApiKey
from drmq.wire.messages.api_versions import ApiVersionsRequest
from drmq.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from drmq.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness, versions


@pytest.mark.parametrize("version", versions(ApiKey.SASL_HANDSHAKE))
def test_a_handshake_is_refused(harness: Harness, version: int) -> None:
    line = KafkaHarness(harness)
    answer = line.ask(SaslHandshakeRequest("PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert not line.paper.closed


@pytest.mark.parametrize("version", versions(ApiKey.SASL_AUTHENTICATE))
def test_an_authentication_is_refused_with_what_to_do(harness: Harness, version: int) -> None:
    line = KafkaHarness(harness)
    answer = line.ask(SaslAuthenticateRequest(b"\0user\0secret"), version)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "without SASL" in answer.error_message
    assert not line.paper.closed


def test_a_client_learns_that_it_may_ask(harness: Harness) -> None:
    """Some clients send a handshake only if ApiVersions lists it."""
    keys = {each.api_key for each in harness.ask(ApiVersionsRequest("test", "1"), 3).api_keys}
    assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= keys
