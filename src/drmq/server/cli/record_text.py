"""Records as text: the formats that `consume` prints and `produce` reads.

JSON cannot represent bytes. A key, value or header that is valid UTF-8 is a string, null is null, and anything else is
`{"base64": "..."}`. `produce --input json` reads what `consume -o json` prints.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drmq.model.options import INT32_MAX
from drmq.server.cli.positions import BadPosition, parse_time, time_text

FORMAT_HELP = (
    "%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T timestamp in ms, %d its date, "
    "%K and %S sizes of key and value, %a attempt (--lease), %% a percent sign; \\n, \\t, \\0, \\xHH"
)

_INT64_MAX = 2**63 - 1

Headers = list[tuple[str, bytes | None]]


class BadRecord(ValueError):
    """A line that is not a valid record. The message says why."""


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record that was consumed."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    attempt: int | None = None
    """The number of its delivery, from 1 on, if it is leased."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to produce. None leaves partition and timestamp to the client."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp_ms: int | None = None


def to_json(record: ReadRecord) -> str:
    """The record as one line of JSON."""
    return json.dumps(record_facts(record), ensure_ascii=False)


def record_facts(record: ReadRecord) -> dict[str, Any]:
    """The record as JSON can represent it."""
    facts: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "time": time_text(record.timestamp_ms),
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
    return facts if record.attempt is None else facts | {"attempt": record.attempt}


def json_bytes(content: bytes | None) -> Any:
    """Bytes in the form that JSON takes."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def from_json(line: str) -> NewRecord:
    """A record from a line of JSON with `value` and, optionally, `key`, `headers`, `partition`, `timestamp_ms`.

    A value may be any JSON: anything but a string, null or base64 is sent as JSON text.
    """
    try:
        content = json.loads(line)
    except ValueError as error:
        raise BadRecord(f"not JSON: {error}") from None
    except RecursionError:
        raise BadRecord("JSON with too many levels") from None
    if not isinstance(content, dict) or "value" not in content:
        raise BadRecord('not an object with a "value"')
    headers = content.get("headers") or []
    if isinstance(headers, dict):
        headers = list(headers.items())
    try:
        pairs = [(_header_name(str(name)), _bytes(value)) for name, value in headers]
    except BadRecord:
        raise
    except (TypeError, ValueError):
        raise BadRecord('"headers" is neither an object nor a list of pairs') from None
    timestamp = content.get("timestamp_ms")
    if isinstance(timestamp, str):
        try:
            timestamp = parse_time(timestamp)
        except BadPosition as error:
            raise BadRecord(f'"timestamp_ms": {error.format_message().rstrip(".")}') from None
    if timestamp == -1:
        # A record without a time, as `to_json` writes it.
        timestamp = None
    partition = content.get("partition")
    for name, number, largest in (("partition", partition, INT32_MAX), ("timestamp_ms", timestamp, _INT64_MAX)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise BadRecord(f'"{name}" is not a whole number')
        if number is not None and not 0 <= number <= largest:
            raise BadRecord(f'"{name}" is {number}, and not a number from 0 to {largest}')
    return NewRecord(_bytes(content.get("key")), _bytes(content["value"]), pairs, partition, timestamp)


def _header_name(text: str) -> str:
    _bytes(text)
    if "\0" in text:
        raise BadRecord(f"the name of the header {text!r} has a NUL")
    return text


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise BadRecord(f"the text has half of a surrogate pair: {error}") from None
    if isinstance(value, dict) and set(value) == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise BadRecord("the base64 text is invalid") from None
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair: the escape that it was read from is valid JSON.
        return json.dumps(value, separators=(",", ":")).encode()


def from_text(line: bytes, key_separator: bytes | None) -> NewRecord:
    """A record from a line of text. With a separator, the text before its first occurrence is the key."""
    if key_separator is not None and key_separator in line:
        key, _, value = line.partition(key_separator)
        return NewRecord(key, value, [])
    return NewRecord(None, line, [])


_FIELDS: dict[str, Callable[[ReadRecord], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: str(record.partition).encode(),
    "o": lambda record: str(record.offset).encode(),
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "T": lambda record: str(record.timestamp_ms).encode(),
    "d": lambda record: (time_text(record.timestamp_ms) or "-").encode(),
    "K": lambda record: str(-1 if record.key is None else len(record.key)).encode(),
    "S": lambda record: str(-1 if record.value is None else len(record.value)).encode(),
    "a": lambda record: str(record.attempt or 1).encode(),
    "%": lambda record: b"%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)", re.DOTALL)


def compile_format(text: str) -> Callable[[ReadRecord], bytes]:
    """A function that prints a record in a format like kcat's. Raises `ValueError` for an invalid format."""
    parts: list[bytes | Callable[[ReadRecord], bytes]] = []
    position = 0
    for match in _TOKEN.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        field, code, escape, plain = match.groups()
        if field is not None:
            if field not in _FIELDS:
                raise ValueError(f"%{field} is not a valid field. Allowed: {FORMAT_HELP}")
            parts.append(_FIELDS[field])
        elif code is not None:
            parts.append(bytes.fromhex(code))
        elif escape is not None:
            if escape not in _ESCAPES:
                raise ValueError(f"\\{escape} is not a valid escape. Allowed: {FORMAT_HELP}")
            parts.append(_ESCAPES[escape])
        else:
            parts.append(plain.encode())
    if position != len(text):
        raise ValueError(f"the format ends with an incomplete field or escape. Allowed: {FORMAT_HELP}")
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def unescape(text: str) -> bytes:
    """A separator as typed, with escapes such as `\\t` for a tab."""
    return compile_format(text.replace("%", "%%"))(ReadRecord("", 0, 0, 0, None, None, []))
