"""SaslHandshake (17): refused, because DRMQ has no authentication yet.

The answer is that of a Kafka listener without SASL. A client takes it as final and reports it. If its connection were
closed instead, it would connect again and again without a reason to report.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
