"""The builder in Python: the same as `_decoder.c`, step for step, and easier to read.

It is used if the C code could not be compiled, and it is the reference in the tests. Any change here must be made in
`_decoder.c` too. In particular both must check in the same order, because a batch with two errors must fail with the
same one.
"""

from __future__ import annotations

from array import array

from drmq.columnar.columns import INT64_MAX, BytesParts, HeadersParts, Parts
from drmq.columnar.outcome import HEADER_COST, Added, Batch, Bounds, Outcome, Place
from drmq.records import Buffer

_INT64_MIN = -INT64_MAX - 1
_MICROSECONDS = 1000
_VARINT_SHIFT_MAX = 63
"""The shift of the tenth byte of a number, of which only one bit is left."""

_ZERO, _ONE = b"01"


class _Fault(Exception):
    """Bad bytes; raised where they are found and caught in `Builder.add`."""

    def __init__(self, outcome: Outcome, first: int = 0, second: int = 0) -> None:
        super().__init__(outcome)
        self.outcome, self.first, self.second = outcome, first, second


class Builder:
    """Collects rows. Created for one piece, used by one thread, and discarded after `finish` or an error."""

    def __init__(self, want_key: bool, want_value: bool, include_headers: bool, /) -> None:
        self.row_count = 0
        self._byte_count = 0
        self._offsets = array("q")
        self._timestamps = array("q")
        self._timestamp_validity = _Validity()
        self._timestamp_types = array("i")
        self._key = _Bytes() if want_key else None
        self._value = _Bytes() if want_value else None
        self._headers = _Headers() if include_headers else None

    def add(self, body: Buffer, place: Place, batch: Batch, bounds: Bounds, /) -> Added:
        """Continue to read the uncompressed records `body` at `place`, and add those within the bounds."""
        position, done_count, last_delta = place
        record_count = batch.record_count
        content = memoryview(body)
        try:
            while done_count < record_count:
                if self.row_count >= bounds.rows_max:
                    return Outcome.FULL, position, done_count, last_delta, 0, 0
                at, offset_delta, outcome = self._add_record(content, position, last_delta, batch, bounds)
                if outcome != Outcome.FINISHED:
                    return outcome, position, done_count, last_delta, 0, 0
                position, last_delta = at, offset_delta
                done_count += 1
        except _Fault as fault:
            return fault.outcome, position, done_count, last_delta, fault.first, fault.second
        if position != len(content):
            return Outcome.BYTES_FOLLOW, position, done_count, last_delta, len(content) - position, 0
        return Outcome.FINISHED, position, done_count, last_delta, 0, 0

    def _add_record(
        self, body: memoryview, at: int, last_delta: int, batch: Batch, bounds: Bounds
    ) -> tuple[int, int, Outcome]:
        """Read the record at `at`, and add it if it is requested; returns its end and offset delta.

        Outcomes that are not errors leave the builder unchanged.
        """
        size, at = _read_number(body, at, len(body))
        if not 0 <= size <= len(body) - at:
            raise _Fault(Outcome.RECORD_SIZE, size, len(body) - at)
        end = at + size
        if size == 0:
            raise _Fault(Outcome.NUMBER_CUT_OFF)
        time_delta, at = _read_number(body, at + 1, end)  # after the attributes, which are unused
        offset_delta, at = _read_number(body, at, end)
        if not last_delta < offset_delta <= batch.last_offset_delta:
            raise _Fault(Outcome.OFFSET_DELTA, offset_delta, last_delta)
        timestamp = batch.base_timestamp
        if not batch.is_log_append_time:
            timestamp += time_delta
            if not _INT64_MIN <= timestamp <= INT64_MAX:
                raise _Fault(Outcome.TIMESTAMP, time_delta)
        offset = batch.base_offset + offset_delta
        if offset >= bounds.end_offset:
            return end, offset_delta, Outcome.PAST_END
        wanted = offset >= bounds.start_offset

        key, at = _read_field(body, at, end)
        value, at = _read_field(body, at, end)
        cost = 0
        if key is not None and self._key is not None:
            cost += len(key)
        if value is not None and self._value is not None:
            cost += len(value)
        if wanted and self._would_be_too_much(cost, bounds):
            return end, offset_delta, Outcome.FULL
        header_count, at = _read_number(body, at, end)
        if header_count < 0:
            raise _Fault(Outcome.HEADER_COUNT, header_count)
        headers: list[tuple[Buffer, Buffer | None]] = []
        # Not a range over a claimed count of any size: each pass consumes two bytes or raises.
        while header_count > 0:
            name, at = _read_field(body, at, end)
            if name is None:
                raise _Fault(Outcome.HEADER_KEY_NULL)
            content, at = _read_field(body, at, end)
            if wanted and self._headers is not None:
                cost += HEADER_COST + len(name) + (0 if content is None else len(content))
                if self._would_be_too_much(cost, bounds):
                    return end, offset_delta, Outcome.FULL
                headers.append((name, content))
            header_count -= 1
        if at != end:
            raise _Fault(Outcome.RECORD_NOT_USED_UP, end - at)

        if wanted:
            self._append(offset, timestamp, batch.is_log_append_time, key, value, headers)
            self._byte_count += cost
        return end, offset_delta, Outcome.FINISHED

    def _would_be_too_much(self, cost: int, bounds: Bounds) -> bool:
        """Whether a row of this cost must go to the next piece. The first row of a piece never must."""
        return self.row_count > 0 and self._byte_count + cost > bounds.bytes_max

    def _append(
        self,
        offset: int,
        timestamp: int,
        is_log_append_time: bool,
        key: Buffer | None,
        value: Buffer | None,
        headers: list[tuple[Buffer, Buffer | None]],
    ) -> None:
        self._offsets.append(offset)
        microseconds = timestamp * _MICROSECONDS
        fits = _INT64_MIN <= microseconds <= INT64_MAX
        self._timestamps.append(microseconds if fits else 0)
        self._timestamp_validity.append(fits)
        self._timestamp_types.append(is_log_append_time)
        if self._key is not None:
            self._key.append(key)
        if self._value is not None:
            self._value.append(value)
        if self._headers is not None:
            self._headers.append(headers)
        self.row_count += 1

    def finish(self) -> Parts:
        """Return the columns."""
        return (
            self.row_count,
            self._offsets.tobytes(),
            self._timestamps.tobytes(),
            self._timestamp_validity.null_count,
            self._timestamp_validity.take(),
            self._timestamp_types.tobytes(),
            None if self._key is None else self._key.take(),
            None if self._value is None else self._value.take(),
            None if self._headers is None else self._headers.take(),
        )


def _read_number(body: memoryview, at: int, end: int) -> tuple[int, int]:
    """The zigzag varint at `at`, and the position after it, which is at most `end`."""
    if at < end and (byte := body[at]) < 0x80:  # nearly always: a small delta, a short key
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = shift = 0
    while at < end:
        byte = body[at]
        at += 1
        if shift == _VARINT_SHIFT_MAX and byte > 1:
            raise _Fault(Outcome.NUMBER_TOO_LONG)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise _Fault(Outcome.NUMBER_CUT_OFF)


def _read_field(body: memoryview, at: int, end: int) -> tuple[memoryview | None, int]:
    size, at = _read_number(body, at, end)
    if size == -1:
        return None, at
    if not 0 <= size <= end - at:
        raise _Fault(Outcome.FIELD_SIZE, size, end - at)
    return body[at : at + size], at + size


class _Validity:
    """A bitmap that grows one bit at a time, kept as binary digits until it is taken."""

    def __init__(self) -> None:
        self.null_count = 0
        self._digits = bytearray()

    def append(self, valid: bool) -> None:
        if valid:
            self._digits.append(_ONE)
        else:
            self._digits.append(_ZERO)
            self.null_count += 1

    def take(self) -> Buffer | None:
        if self.null_count == 0:
            return None
        self._digits.reverse()  # the first row is the lowest bit, and digits are read from the highest
        return int(self._digits, 2).to_bytes((len(self._digits) + 7) // 8, "little")


class _Bytes:
    """A column of bytes or nulls."""

    def __init__(self) -> None:
        self.count = 0
        self._validity = _Validity()
        self._offsets = array("i", [0])
        self._data = bytearray()

    def append(self, value: Buffer | None) -> None:
        if value is not None:
            self._data += value
        self._validity.append(value is not None)
        self._offsets.append(len(self._data))
        self.count += 1

    def take(self) -> BytesParts:
        return self._validity.null_count, self._validity.take(), self._offsets.tobytes(), bytes(self._data)


class _Headers:
    """The column of headers."""

    def __init__(self) -> None:
        self._validity = _Validity()
        self._offsets = array("i", [0])
        self._keys = _Bytes()
        self._values = _Bytes()
        self._keys_are_utf8 = True

    def append(self, headers: list[tuple[Buffer, Buffer | None]]) -> None:
        for name, value in headers:
            self._keys.append(name)
            self._values.append(value)
            try:
                str(name, "utf-8")
            except UnicodeDecodeError:
                self._keys_are_utf8 = False
        self._validity.append(bool(headers))
        self._offsets.append(self._keys.count)

    def take(self) -> HeadersParts:
        return (
            self._validity.null_count,
            self._validity.take(),
            self._offsets.tobytes(),
            self._keys.count,
            self._keys.take(),
            self._values.take(),
            self._keys_are_utf8,
        )
