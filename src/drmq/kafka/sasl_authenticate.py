"""SaslAuthenticate (36): refused, because DRMQ has no authentication yet; see `sasl_handshake`."""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import ErrorCode
from drmq.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

NO_SASL = "this listener has no authentication: connect without SASL (security.protocol=PLAINTEXT)"


def handle(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, NO_SASL)
