"""Codecs for values: bytes as they are, text, JSON, or what the application brings.

An application may give a name, an object with `encode` and `decode`, a pair of such functions, or only the function
that its side needs: a producer encodes, a consumer decodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

T = TypeVar("T")

CodecName: TypeAlias = Literal["bytes", "text", "json"]
NAMES: tuple[CodecName, ...] = ("bytes", "text", "json")


class Codec(Protocol[T]):
    """Makes bytes of a value, and the value of bytes."""

    def encode(self, value: T, /) -> bytes: ...
    def decode(self, data: bytes, /) -> T: ...


Pair: TypeAlias = tuple[Callable[[T], bytes], Callable[[bytes], T]]
"""`encode`, then `decode`."""
Decoding: TypeAlias = Codec[T] | Pair[T] | Callable[[bytes], T]
Encoding: TypeAlias = Codec[T] | Pair[T] | Callable[[T], bytes]


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decoder_of(codec: CodecName | Decoding[Any]) -> Callable[[bytes], Any] | None:
    """The function that decodes values; None if they stay bytes. Raises `ValueError`."""
    if isinstance(codec, str):
        _check_name(codec)
        return {"bytes": None, "text": bytes.decode, "json": json.loads}[codec]
    return _part(codec, "decode", 1)


def encoder_of(codec: CodecName | Encoding[Any]) -> Callable[[Any], bytes] | None:
    """The function that encodes values; None if they must be bytes. Raises `ValueError`."""
    if isinstance(codec, str):
        _check_name(codec)
        return {"bytes": None, "text": str.encode, "json": _json_bytes}[codec]
    return _part(codec, "encode", 0)


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"codec is {name!r}, and must be one of {', '.join(NAMES)}, or an object with such methods")


def _part(codec: object, method: str, index: int) -> Callable[[Any], Any]:
    if isinstance(codec, tuple):
        found = codec[index] if len(codec) == 2 else None
    else:
        found = getattr(codec, method, None) or codec
    if not callable(found):
        raise ValueError(f"codec {codec!r} has no function to {method}")
    return cast("Callable[[Any], Any]", found)
