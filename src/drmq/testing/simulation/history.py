"""What clients sent and received, and the rules for it.

Every client records what it sends before it sends it, and what it receives when it receives it. Some rules are checked
at once: what is known must never change. The others are checked after all faults are repaired and everything was read
once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from drmq.testing.simulation.world import World


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Outcome(Enum):
    """What a producer knows about a record that it has sent."""

    OPEN = "open"
    ACKED = "acked"


@dataclass(slots=True)
class Sent:
    """A record that was sent. `value` is unique."""

    place: Place
    value: bytes
    is_durable: bool
    """Whether its producer requested acks=all."""
    is_idempotent: bool
    known_end: int
    """The end of the partition, as known to any client, when the record was first sent."""
    outcome: Outcome = Outcome.OPEN
    offset: int = -1


class History:
    """The records of all clients of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent: dict[bytes, Sent] = {}
        self.seen: dict[Place, dict[int, bytes]] = {}
        """What consumers received, by offset."""
        self.final: dict[Place, dict[int, bytes]] = {}
        """The records at the end."""
        self.start: dict[Place, int] = {}
        """The first offset of each partition at the end."""
        self.short_lived: set[str] = set()
        """Topics whose oldest records may be removed."""
        self.known_end: dict[Place, int] = {}
        """The highest end of each partition that any client received."""
        self.committed: dict[tuple[str, Place], int] = {}
        """Offsets of groups whose commit was confirmed."""
        self.asked: dict[tuple[str, Place], int] = {}
        """The highest offset that a group has tried to commit."""
        self.acked_count = 0
        self.read_count = 0
        self.committed_count = 0

    # ---- producers ------------------------------------------------------------------------------

    def on_send(self, place: Place, value: bytes, *, is_durable: bool, is_idempotent: bool) -> Sent:
        sent = self.sent[value] = Sent(place, value, is_durable, is_idempotent, self.known_end.get(place, 0))
        return sent

    def on_acked(self, sent: Sent, offset: int) -> None:
        world = self._world
        if sent.outcome is Outcome.ACKED:
            return
        sent.outcome, sent.offset = Outcome.ACKED, offset
        self.acked_count += 1
        if not sent.is_durable:
            return
        world.require(
            offset >= sent.known_end,
            "acked-above-known",
            f"{sent.value!r} got offset {offset} of {sent.place}, which ended at {sent.known_end} before it was sent",
        )
        self.learn_end(sent.place, offset + 1)
        self._note(sent.place, offset, sent.value, "its producer")

    # ---- consumers ------------------------------------------------------------------------------

    def on_read(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        self.read_count += 1
        sent = self.sent.get(value)
        self._world.require(
            sent is not None and sent.place == place,
            "nothing-invented",
            f"{reader} read {value[:40]!r} at {place} {offset}, which no client sent there",
        )
        self.learn_end(place, offset + 1)
        self._note(place, offset, value, reader)

    def _note(self, place: Place, offset: int, value: bytes, client: str) -> None:
        known = self.seen.setdefault(place, {}).setdefault(offset, value)
        self._world.require(
            known == value,
            "offsets-never-change",
            f"{place} {offset} was {known[:40]!r} for one client and is {value[:40]!r} for {client}",
        )

    def learn_end(self, place: Place, end: int) -> None:
        if end > self.known_end.get(place, 0):
            self.known_end[place] = end

    def on_end_answered(self, place: Place, end: int, floor: int) -> None:
        """A client requested the end of a partition; `floor` is what was known when it did."""
        self._world.require(
            end >= floor,
            "high-watermark-monotone",
            f"the end of {place} was reported as {end}, but {floor} was known before the request",
        )
        self.learn_end(place, end)

    # ---- groups ---------------------------------------------------------------------------------

    def on_committed(self, group: str, place: Place, offset: int) -> None:
        key = (group, place)
        self.committed_count += 1
        self.committed[key] = max(offset, self.committed.get(key, -1))

    def on_committed_read(self, group: str, place: Place, offset: int, floor: int) -> None:
        self._world.require(
            offset >= floor,
            "committed-group-offsets-monotone",
            f"group {group} had committed {floor} of {place}, but now {offset} is reported",
        )
        self._world.require(
            offset <= self.asked.get((group, place), -1),
            "committed-group-offsets-monotone",
            f"group {group} is at {offset} of {place}, which it never committed",
        )

    # ---- the end --------------------------------------------------------------------------------

    def violations(self) -> Iterator[tuple[str, str]]:
        """The violations in the final state, given everything that clients received before."""
        for place, start in self.start.items():
            if start > 0 and place.topic not in self.short_lived:
                yield "no-acked-record-lost", f"{place} begins at {start}, but no records were to be removed from it"
        for sent in self.sent.values():
            final = self.final.get(sent.place, {})
            if sent.outcome is Outcome.ACKED and sent.is_durable and sent.offset >= self.start.get(sent.place, 0):
                found = final.get(sent.offset)
                if found != sent.value:
                    text = f"{sent.value[:40]!r}, acknowledged at {sent.place} {sent.offset}, is "
                    yield "no-acked-record-lost", text + ("gone" if found is None else f"now {found[:40]!r}")
        for place, records in self.seen.items():
            for offset, value in records.items():
                if offset >= self.start.get(place, 0) and self.final.get(place, {}).get(offset) != value:
                    yield (
                        "no-uncommitted-record-seen",
                        f"{value[:40]!r} was read at {place} {offset}, but is missing at the end",
                    )
        for place, records in self.final.items():
            places: dict[bytes, int] = {}
            for offset, value in records.items():
                other = places.setdefault(value, offset)
                sent_here = self.sent.get(value)
                if sent_here is None or sent_here.place != place:
                    yield "nothing-invented", f"{value[:40]!r} is at {place} {offset}, but no client sent it there"
                elif other != offset and sent_here.is_idempotent:
                    yield "no-duplicates-with-idempotence", f"{value[:40]!r} is at {place} {other} and {offset}"
