"""Reading and writing messages: `decode` and `encode`, and the functions that their compiled code uses.

The problem: there are thirty APIs in up to eighteen versions each, of which a client uses a few. Interpreting a schema
for each message is slow in Python, and four hundred hand-written functions cannot be maintained. The idea: when a
version of a message is first used, its schema (see `fields`) is compiled into two plain functions (see `compiler`). In
these, a run of fixed-size fields is one `struct` call, and everything that depends only on the version is already
decided.

Invariants of `decode`, whatever bytes it is given:

- it returns a value or raises `ProtocolError`, and no other exception;
- it reads a message that fills its buffer exactly: extra bytes are an error, like missing ones;
- it allocates in proportion to the bytes that are there, not to a claimed count: an array's count is checked against
  the bytes that are left before its list is created.

Writing trusts its caller: a value that does not fit its field is a bug in DRMQ, not a peer's fault, and raises
`struct.error` or `ValueError`. Unknown tagged fields are skipped, as the protocol requires. Framing and headers are in
`frames`, the hot path in `produce` and `fetch`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from drmq.wire.errors import ProtocolError

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
Reader = Callable[[Buffer, int, int], tuple[Any, int]]
Writer = Callable[[Any, bytearray], None]

MALFORMED = (struct.error, IndexError, UnicodeDecodeError)
"""Raised when a read passes the end or a string is not UTF-8; callers turn these into `ProtocolError`."""


class EncodedArray:
    """Structures that are encoded already. A message may have it instead of a list, where it is only written.

    For large answers: their parts can be kept, or encoded in a faster way than one structure at a time.
    """

    __slots__ = ("_count", "data")

    def __init__(self, count: int, data: Buffer) -> None:
        self._count = count
        self.data = data

    def __len__(self) -> int:
        return self._count


class Pieces:
    """A payload in several buffers. A message may have it instead of bytes, where it is only written.

    For record batches, which are large: into a `Frame` they are not copied.
    """

    __slots__ = ("_size", "buffers")

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = buffers
        self._size = sum(map(len, buffers))

    def __len__(self) -> int:
        return self._size


class Frame(bytearray):
    """Encoded bytes, with pieces that belong between them."""

    __slots__ = ("pieces",)

    def __init__(self, start: bytes) -> None:
        super().__init__(start)
        self.pieces: list[tuple[int, Pieces]] | None = None
        """Each with its position in the bytes; None if there are none."""


def put_pieces(pieces: Pieces, out: bytearray) -> None:
    """Append a payload to `out`."""
    if not isinstance(out, Frame):
        for buffer in pieces.buffers:
            out += buffer
    elif out.pieces is None:
        out.pieces = [(len(out), pieces)]
    else:
        out.pieces.append((len(out), pieces))


ARRAY_COUNT_MAX = 200_000
"""No correct peer sends a longer list; a frame that claims one is refused."""

_readers: dict[tuple[type, int], Reader] = {}
_writers: dict[tuple[type, int], Writer] = {}
_part_writers: dict[tuple[type, type, int], Writer] = {}


def decode(cls: type[T], version: int, buffer: Buffer, position: int = 0, *, allow_tail: bool = False) -> T:
    """The message that fills `buffer` from `position` to its end, or with `allow_tail` a part of that."""
    end = len(buffer)
    reader = _readers.get((cls, version)) or _compile_reader(cls, version)
    try:
        value, stop = reader(buffer, position, end)
    except MALFORMED as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error
    if stop != end and not allow_tail:
        raise ProtocolError(f"{cls.__name__} v{version}: {end - stop} bytes too many")
    return value  # type: ignore[no-any-return]  # compiled code has no types; the schema is its type


def encode_part(value: object, message: type, version: int, out: bytearray) -> None:
    """Append a structure to `out`, as it is in this version of the message: for an `EncodedArray`."""
    cls = type(value)
    writer = _part_writers.get((cls, message, version)) or _compile_part_writer(cls, message, version)
    writer(value, out)


def encode(value: object, version: int, out: bytearray) -> None:
    """Append the message to `out`."""
    cls = type(value)
    writer = _writers.get((cls, version)) or _compile_writer(cls, version)
    writer(value, out)


def _compile_reader(cls: type, version: int) -> Reader:
    # Imported when first needed: start-up pays neither for the compiler nor for `dataclasses`.
    from drmq.wire.compiler import message_reader

    reader = _readers[cls, version] = message_reader(cls, version)
    return reader


def _compile_writer(cls: type, version: int) -> Writer:
    from drmq.wire.compiler import message_writer

    writer = _writers[cls, version] = message_writer(cls, version)
    return writer


def _compile_part_writer(cls: type, message: type, version: int) -> Writer:
    from drmq.wire.compiler import part_writer

    writer = _part_writers[cls, message, version] = part_writer(cls, message, version)
    return writer


# ---- pieces that compiled and hand-written readers share -----------------------------------------


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes, and the position behind it."""
    result = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint of more than five bytes")


def write_uvarint(value: int, out: bytearray) -> None:
    """Append `value` in seven-bit groups, the lowest first."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """The position behind a block of tagged fields of which none is known."""
    count, position = read_uvarint(buffer, position)
    # Each takes two bytes at least; without the check a claim of 2**32 is only refused at the end.
    if count * 2 > end - position:
        raise ProtocolError(f"{count} tagged fields where {end - position} bytes are left")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise field_too_long(size, position - size, end)
    return position


def check_count(count: int, size_min: int, position: int, end: int) -> None:
    """Refuse a count that the bytes left cannot hold."""
    if count < 0 or count > ARRAY_COUNT_MAX or count * size_min > end - position:
        raise ProtocolError(f"an array of {count} elements where {end - position} bytes are left")


def check_total(count: int) -> None:
    """Refuse a message whose inner lists together have too many elements, though each alone has not."""
    if count > ARRAY_COUNT_MAX:
        raise ProtocolError(f"{count} elements in the lists of one message")


def field_too_long(size: int, position: int, end: int) -> ProtocolError:
    return ProtocolError(f"a field of {size} bytes where {end - position} are left")


def unexpected_null(name: str) -> ProtocolError:
    return ProtocolError(f"{name} is null or of negative size, which this version does not allow")
