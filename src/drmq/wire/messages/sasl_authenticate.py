"""SaslAuthenticate (36): one step of an authentication, whose bytes belong to the mechanism."""
# ruff: noqa: RUF009  # `binary` returns a dataclass field, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.codec import Buffer
from drmq.wire.fields import binary, int16, int64, message, string


@message(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class SaslAuthenticateRequest:
    auth_bytes: Buffer = binary()


@message(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: Buffer = binary()
    session_lifetime_ms: int = int64("1+")
