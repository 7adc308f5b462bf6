"""The counters of a DRMQ node, requested over a plain socket.

`drmq debug counters` prints the same; here a request must cost the node as little as possible, because it is made
during measurements. The API is DescribeCounters version 0, which DRMQ alone has.
"""

import struct
from dataclasses import dataclass

from bench.kafka_frames import CLIENT_ID, string
from bench.kafka_metadata import exchange

DESCRIBE_COUNTERS = 12_000
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Counter:
    """One counter with one set of labels."""

    value: int
    """Of a histogram: the sum of all values."""
    buckets: tuple[int, ...] = ()
    """Of a histogram: how many values were below 2^i, and in no earlier bucket."""

    @property
    def count(self) -> int:
        """Of a histogram: how many values there were."""
        return sum(self.buckets)

    def since(self, before: "Counter | None") -> "Counter":
        """What was added after `before`; all of it if the node has started again since."""
        if before is None or before.value > self.value or len(before.buckets) > len(self.buckets):
            return self
        old = before.buckets + (0,) * (len(self.buckets) - len(before.buckets))
        left = [new - gone for new, gone in zip(self.buckets, old, strict=True)]
        while left and not left[-1]:
            left.pop()
        return Counter(self.value - before.value, tuple(left))

    @property
    def bound(self) -> int:
        """Of a histogram: a number that no value exceeds, at most twice the largest."""
        return (1 << len(self.buckets)) - 1 if self.buckets else 0


def ask(port: int, prefix: str = "", timeout_seconds: float = TIMEOUT_SECONDS) -> dict[str, Counter]:
    """By name, with the values of labels behind it in brackets; raises OSError if the node does not answer."""
    header = struct.pack(">hhi", DESCRIBE_COUNTERS, 0, 1) + string(CLIENT_ID) + b"\0"
    request = header + _unsigned(len(prefix) + 1) + prefix.encode() + b"\0"
    reader = _Reader(exchange(port, request, timeout_seconds))
    reader.take("i")
    reader.tags()
    reader.take("i")
    error = reader.take("h")
    words = reader.text()
    if error:
        raise OSError(f"the node refused to report its counters: {words}")
    reader.take("i")
    found = {}
    for _ in range(reader.unsigned() - 1):
        name = reader.text()
        reader.take("b")
        labels = []
        for _ in range(reader.unsigned() - 1):
            reader.text()
            labels.append(reader.text())
            reader.tags()
        value = reader.take("q")
        buckets = tuple(reader.take("q") for _ in range(reader.unsigned() - 1))
        reader.tags()
        found[name + (f"[{','.join(labels)}]" if labels else "")] = Counter(value, buckets)
    return found


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Reader:
    """The flexible encoding: lengths as unsigned varints plus one, tagged fields behind each structure."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> int:
        value = struct.unpack_from(">" + form, self._data, self._at)[0]
        self._at += struct.calcsize(">" + form)
        return int(value)

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> str:
        size = max(0, self.unsigned() - 1)
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def tags(self) -> None:
        for _ in range(self.unsigned()):
            self.unsigned()
            self._at += self.unsigned()
