"""Codecs: what an application may give, and what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drmq.client.codecs import decoder_of, encoder_of


class Upper:
    def encode(self, value: str) -> bytes:
        return value.upper().encode()

    def decode(self, data: bytes) -> str:
        return data.decode().lower()


@pytest.mark.parametrize(
    ("codec", "value", "data"),
    [
        ("text", "grün", "grün".encode()),
        ("json", {"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode()),
        (Upper(), "abc", b"ABC"),
        ((lambda value: b"%d" % value, int), 7, b"7"),
    ],
)
def test_values_survive(codec: Any, value: object, data: bytes) -> None:
    encode, decode = encoder_of(codec), decoder_of(codec)
    assert encode is not None
    assert decode is not None
    assert encode(value) == data
    assert decode(data) == value


def test_bytes_need_no_function() -> None:
    assert encoder_of("bytes") is None
    assert decoder_of("bytes") is None


def test_one_function_is_enough_for_one_side() -> None:
    assert decoder_of(json.loads) is json.loads
    assert encoder_of(str.encode) is str.encode


@pytest.mark.parametrize("codec", ["xml", 7, (len,), (1, 2)])
def test_what_is_no_codec_is_refused_at_once(codec: Any) -> None:
    with pytest.raises(ValueError, match="codec"):
        decoder_of(codec)
    with pytest.raises(ValueError, match="codec"):
        encoder_of(codec)
