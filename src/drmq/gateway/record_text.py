"""Records as text: which form of a key or value a person can read, within limits."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import msgspec

from drmq.gateway.types import HeaderView, RecordView
from drmq.records import Record

SHOWN_BYTES_MAX: Final = 65_536
"""Bytes of a key or value that are sent to a page. More is cut, and the record says so."""
HEADERS_MAX: Final = 200


def describe(partition: int, record: Record) -> RecordView:
    """A record with its key and value in the first form that fits: JSON, text, base64."""
    key, key_format, key_cut = shown(record.key)
    value, value_format, value_cut = shown(record.value)
    headers, headers_cut = shown_headers(record.headers)
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name.encode()) + len(content or b"") for name, content in record.headers)
    return RecordView(
        partition,
        record.offset,
        record.timestamp,
        key,
        value,
        headers,
        key_format,
        value_format,
        size,
        key_cut or value_cut or headers_cut,
    )


def shown_size(record: RecordView) -> int:
    """The characters that are shown of a record."""
    size = len(record.key or "") + len(record.value or "")
    return size + sum(len(header.name) + len(header.value or "") for header in record.headers)


def shown_headers(headers: Sequence[tuple[str, bytes | None]]) -> tuple[list[HeaderView], bool]:
    """The first headers, and whether there are more."""
    found = []
    for name, content in headers[:HEADERS_MAX]:
        text, form, _ = shown(content)
        found.append(HeaderView(name, text, form))
    return found, len(headers) > HEADERS_MAX


def shown(content: bytes | None, size_max: int = SHOWN_BYTES_MAX) -> tuple[str | None, str, bool]:
    """The text, its form, and whether it was cut."""
    if content is None:
        return None, "null", False
    is_cut = len(content) > size_max
    part = bytes(content[:size_max])
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if not (is_cut and error.start > len(part) - 4):
            return base64.b64encode(part).decode(), "base64", is_cut
        text = part[: error.start].decode()  # the cut is in the middle of a character
    if not is_cut and _is_json(content):
        return text, "json", False
    return text, "text", is_cut


def _is_json(content: bytes) -> bool:
    """Whether it is an object or a list. A bare number or word is better shown as the text that it is."""
    if content.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
