"""SaslHandshake (17): which mechanism a client wants to authenticate with, and which the broker offers."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, message, string


@message(ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None)
@dataclass(slots=True)
class SaslHandshakeRequest:
    mechanism: str = string()


@message(ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None)
@dataclass(slots=True)
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array("string")
