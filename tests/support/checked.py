"""Producers and consumers that record everything, and the rules that the records must satisfy.

Whether a broker lost something cannot be seen from its content; one has to know what it promised. So every producer
records each send before it starts and again when it is answered, every consumer records each record that it received,
and at the end small functions compare the records:

- R1: an acknowledged offset is above every offset that anyone knew before that send started;
- R2: no offset is acknowledged twice;
- R3: the offsets that one consumer sees strictly increase between seeks;
- R4: what is read at an acknowledged offset is what was sent there;
- R5: there is no record that was never sent;
- R6: every acknowledged offset is read by the end, and so is what was acknowledged without one;
- R7: a send whose outcome or offset is open may appear, but only above what was known at its start; a failed one never;
- R8: nothing that was sent once appears twice;
- seen: an offset never shows two records, and what was seen once is there at the end;
- commits: a committed offset never goes back, and is always one that was committed by a client.

A rule returns its violations as texts, so that one run can report all of them. `violations` applies every rule.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

NOTHING_KNOWN = -1


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Stamp(NamedTuple):
    """What a payload says about itself."""

    place: Place
    producer: str
    sequence: int


class BadPayload(ValueError):
    """A payload that no checked producer made, or that was changed on its way."""


def payload(stamp: Stamp, size: int = 0) -> bytes:
    """A value that names its topic, partition, producer and sequence, and ends in a checksum."""
    head = f"{stamp.place.topic}|{stamp.place.partition}|{stamp.producer}|{stamp.sequence}|".encode()
    filler = hashlib.blake2b(head).digest()
    missing = max(0, size - len(head) - 4)
    body = head + (filler * (missing // len(filler) + 1))[:missing]
    return body + zlib.crc32(body).to_bytes(4, "big")


def read_stamp(value: bytes) -> Stamp:
    """The stamp of a payload; raises `BadPayload`."""
    if len(value) < 4 or zlib.crc32(value[:-4]) != int.from_bytes(value[-4:], "big"):
        raise BadPayload(f"checksum of {value[:60]!r}")
    parts = value[:-4].split(b"|", 4)
    if len(parts) != 5:
        raise BadPayload(f"no stamp in {value[:60]!r}")
    return Stamp(Place(parts[0].decode(), int(parts[1])), parts[2].decode(), int(parts[3]))


class Outcome(Enum):
    """What a producer knows about a send."""

    OPEN = "open"
    ACKED = "acked"
    FAILED = "failed"


@dataclass(slots=True)
class Send:
    """One record on its way, from before the request leaves until its answer."""

    stamp: Stamp
    content: bytes
    """Digest of key, headers and value."""
    known_offset: int
    """The highest offset that anyone knew when this send started."""
    outcome: Outcome = Outcome.OPEN
    offset: int = NOTHING_KNOWN
    """Where it was acknowledged, if that was said: librdkafka has no offset for an idempotent batch that the broker
    knows already, and of which it does not remember where it is."""


class Read(NamedTuple):
    """One record as a consumer saw it. `sitting` counts the seeks of that consumer."""

    reader: str
    sitting: int
    place: Place
    offset: int
    stamp: Stamp | None
    """None: the payload did not check."""
    content: bytes


@dataclass(slots=True)
class Commit:
    """A committed offset: asked for, and perhaps confirmed."""

    group: str
    place: Place
    offset: int
    floor: int
    """The highest offset whose commit had been confirmed when this one started."""
    confirmed: bool = False


class Look(NamedTuple):
    """What the broker said that a group has committed."""

    group: str
    place: Place
    offset: int
    floor: int


Headers = Sequence[tuple[str, bytes | None]]


def digest(key: bytes | None, headers: Headers | None, value: bytes | None) -> bytes:
    """All that a record carries, as 16 bytes."""
    return hashlib.blake2b(repr((key, list(headers or ()), value)).encode(), digest_size=16).digest()


@dataclass
class History:
    """The notes of all producers and consumers of a run. Any thread may write."""

    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    final: list[Read] = field(default_factory=list)
    """The reads of the last complete pass, when all was quiet."""
    commits: list[Commit] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    acked_count: int = 0
    acked_by: Counter[str] = field(default_factory=Counter)
    """Acknowledgements by producer."""
    _known: dict[Place, int] = field(default_factory=dict)
    _confirmed: dict[tuple[str, Place], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ---- producers ------------------------------------------------------------------------------

    def on_send(self, stamp: Stamp, value: bytes, key: bytes | None = None, headers: Headers | None = None) -> Send:
        """To be called before the request leaves."""
        with self._lock:
            send = Send(stamp, digest(key, headers, value), self._known.get(stamp.place, NOTHING_KNOWN))
            self.sends.append(send)
            return send

    def on_acked(self, send: Send, offset: int | None) -> None:
        with self._lock:
            send.outcome = Outcome.ACKED
            self.acked_count += 1
            self.acked_by[send.stamp.producer] += 1
            if offset is not None:
                send.offset = offset
                self._learn(send.stamp.place, offset)

    def on_failed(self, send: Send) -> None:
        """Only for what certainly did not happen; a time-out or a lost connection leaves the send open."""
        with self._lock:
            send.outcome = Outcome.FAILED

    # ---- consumers ------------------------------------------------------------------------------

    def on_read(
        self,
        reader: str,
        sitting: int,
        place: Place,
        offset: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        *,
        final: bool = False,
    ) -> None:
        try:
            stamp = read_stamp(value or b"")
        except BadPayload:
            stamp = None
        read = Read(reader, sitting, place, offset, stamp, digest(key, headers, value))
        with self._lock:
            (self.final if final else self.reads).append(read)
            self._learn(place, offset)

    def known_offset(self, place: Place) -> int:
        """The highest offset that anyone has had acknowledged or has read; to be asked before the broker is."""
        with self._lock:
            return self._known.get(place, NOTHING_KNOWN)

    def _learn(self, place: Place, offset: int) -> None:
        if offset > self._known.get(place, NOTHING_KNOWN):
            self._known[place] = offset

    # ---- groups ---------------------------------------------------------------------------------

    def on_commit(self, group: str, place: Place, offset: int) -> Commit:
        """To be called before the request leaves."""
        with self._lock:
            commit = Commit(group, place, offset, self._confirmed.get((group, place), NOTHING_KNOWN))
            self.commits.append(commit)
            return commit

    def on_confirmed(self, commit: Commit) -> None:
        with self._lock:
            commit.confirmed = True
            at = (commit.group, commit.place)
            self._confirmed[at] = max(self._confirmed.get(at, NOTHING_KNOWN), commit.offset)

    def committed_floor(self, group: str, place: Place) -> int:
        """The highest confirmed commit; to be asked before the broker is."""
        with self._lock:
            return self._confirmed.get((group, place), NOTHING_KNOWN)

    def on_look(self, look: Look) -> None:
        with self._lock:
            self.looks.append(look)


# ---- the rules ----------------------------------------------------------------------------------


def acked_above_known(history: History) -> Iterator[str]:
    """R1."""
    for send in _placed(history):
        if send.offset <= send.known_offset:
            yield f"R1: {send.stamp} was acknowledged at {send.offset}, but {send.known_offset} was known before"


def acked_once(history: History) -> Iterator[str]:
    """R2."""
    seen: dict[tuple[Place, int], Send] = {}
    for send in _placed(history):
        other = seen.setdefault((send.stamp.place, send.offset), send)
        if other is not send:
            yield f"R2: offset {send.offset} was acknowledged to {other.stamp} and to {send.stamp}"


def reads_increase(history: History) -> Iterator[str]:
    """R3."""
    for reads in (history.reads, history.final):
        last: dict[tuple[str, int, Place], int] = {}
        for read in reads:
            at = (read.reader, read.sitting, read.place)
            if read.offset <= last.get(at, NOTHING_KNOWN):
                yield f"R3: {read.reader} saw {read.place} {read.offset} after {last[at]}"
            last[at] = read.offset


def content_as_sent(history: History) -> Iterator[str]:
    """R4."""
    sent = {(send.stamp.place, send.offset): send for send in _placed(history)}
    for read in _all_reads(history):
        send = sent.get((read.place, read.offset))
        if send is not None and (read.stamp != send.stamp or read.content != send.content):
            yield f"R4: {read.reader} saw {read.stamp} at {read.place} {read.offset}, where {send.stamp} was sent"


def nothing_invented(history: History) -> Iterator[str]:
    """R5."""
    sent = {send.stamp: send.content for send in history.sends}
    for read in _all_reads(history):
        if read.stamp is None:
            yield f"R5: {read.reader} saw a damaged payload at {read.place} {read.offset}"
        elif read.stamp.place != read.place:
            yield f"R5: {read.reader} saw at {read.place} {read.offset} what was sent to {read.stamp.place}"
        elif sent.get(read.stamp) != read.content:
            yield f"R5: {read.reader} saw {read.stamp} at {read.offset}, which nobody sent so"


def acked_is_there(history: History) -> Iterator[str]:
    """R6."""
    there = {(read.place, read.offset) for read in history.final}
    stamps = {read.stamp for read in history.final}
    for send in _acked(history):
        if send.offset == NOTHING_KNOWN:
            if send.stamp not in stamps:
                yield f"R6: {send.stamp}, acknowledged without an offset, is lost"
        elif (send.stamp.place, send.offset) not in there:
            yield f"R6: {send.stamp}, acknowledged at {send.offset}, is lost"


def open_only_above_known(history: History) -> Iterator[str]:
    """R7."""
    undecided = {send.stamp: send for send in history.sends if send.offset == NOTHING_KNOWN}
    for read in _all_reads(history):
        send = undecided.get(read.stamp) if read.stamp is not None else None
        if send is None:
            continue
        if send.outcome is Outcome.FAILED:
            yield f"R7: {send.stamp} failed for certain, and was seen at {read.offset}"
        elif read.offset <= send.known_offset:
            yield f"R7: {send.stamp} was seen at {read.offset}, but {send.known_offset} was known before it was sent"


def nothing_twice(history: History) -> Iterator[str]:
    """R8."""
    places: dict[Stamp, set[int]] = defaultdict(set)
    for read in _all_reads(history):
        if read.stamp is not None:
            places[read.stamp].add(read.offset)
    for stamp, offsets in places.items():
        if len(offsets) > 1:
            yield f"R8: {stamp} is at {sorted(offsets)}"


def seen_stays(history: History) -> Iterator[str]:
    """An offset never shows two records, and what a consumer saw is there at the end."""
    there = {(read.place, read.offset): read for read in history.final}
    for read in history.reads:
        last = there.get((read.place, read.offset))
        if last is None:
            yield f"seen: {read.reader} saw {read.stamp} at {read.place} {read.offset}, and it vanished"
        elif last.content != read.content:
            yield f"seen: {read.place} {read.offset} was {read.stamp} for {read.reader} and {last.stamp} at the end"


def commits_stay(history: History) -> Iterator[str]:
    """A committed offset never goes back, and is one that a client committed."""
    asked: dict[tuple[str, Place], set[int]] = defaultdict(set)
    for commit in history.commits:
        asked[commit.group, commit.place].add(commit.offset)
        if commit.confirmed and commit.offset < commit.floor:
            yield f"commits: {commit.group} went back to {commit.offset} of {commit.place} from {commit.floor}"
    for look in history.looks:
        if look.offset < look.floor:
            yield f"commits: {look.group} had {look.floor} of {look.place} confirmed, and then {look.offset}"
        elif look.offset != NOTHING_KNOWN and look.offset not in asked[look.group, look.place]:
            yield f"commits: {look.group} has {look.offset} of {look.place}, which nobody committed"


RULES: tuple[Callable[[History], Iterator[str]], ...] = (
    acked_above_known,
    acked_once,
    reads_increase,
    content_as_sent,
    nothing_invented,
    acked_is_there,
    open_only_above_known,
    nothing_twice,
    seen_stays,
    commits_stay,
)


def violations(history: History) -> list[str]:
    """What every rule has to say."""
    return [text for rule in RULES for text in rule(history)]


def report(found: Sequence[str], limit: int = 20) -> str:
    """Violations as a text for a failing test: the first few, and how many there are."""
    more = [f"... and {len(found) - limit} more"] if len(found) > limit else []
    return "\n".join([f"{len(found)} violations:", *found[:limit], *more])


def _acked(history: History) -> Iterator[Send]:
    return (send for send in history.sends if send.outcome is Outcome.ACKED)


def _placed(history: History) -> Iterator[Send]:
    """What was acknowledged at an offset that is known."""
    return (send for send in _acked(history) if send.offset != NOTHING_KNOWN)


def _all_reads(history: History) -> Iterable[Read]:
    return (read for reads in (history.reads, history.final) for read in reads)
