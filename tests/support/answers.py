"""A client that asks every node about everything, all the time, and knows which answers cannot be true.

Real clients hide a wrong answer: they ask again, reset their position by a policy, or believe it. `AnswerChecker` sends
requests made by hand, one at a time, and compares each answer that is no error with earlier answers and with what was
acknowledged to others:

- Fetch at an offset that was committed is never out of range and returns a batch that contains it, and the high
  watermark does not go back within or across terms;
- ListOffsets returns the true beginning, and an end above everything acknowledged before the request;
- OffsetForLeaderEpoch never ends a term before what was read of it, nor after the beginning of the next;
- OffsetFetch returns no less than what was confirmed before the request.

Requests carry the highest term that the checker knows, like those of real clients: a leader that does not know of its
successor must refuse them, and may be behind. Refusals are fine as long as clients retry after them. Anything else is
recorded in `problems` with the node, the request and the answer.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from support.checked import History, Place
from support.checked_clients import CheckedClient
from support.raw_client import EARLIEST, LATEST, RawClient, RequestFailed
from support.wire import FETCH, LIST_OFFSETS, Reader, array, int8, int32, int64, request, string

OFFSET_FOR_LEADER_EPOCH = 23
ASK_AGAIN = frozenset({3, 5, 6, 7, 14, 15, 16, 56, 74, 75, 78})
"""Codes after which every client asks again, here or elsewhere: unknown topic, no leader, not the leader, timed out,
coordinator loading, not available or elsewhere, storage error, fenced or unknown term, offset not available."""
PROBLEMS_MAX = 20
_TIMEOUT_S = 1.0
_PAUSE_S = 0.03
_FETCH_BYTES = 20_000


class SeenBatch(NamedTuple):
    """What the head of a batch says."""

    base_offset: int
    last_offset: int
    term: int


def read_heads(data: bytes) -> Iterator[SeenBatch]:
    """The heads of all batches of an answer, also of one that is cut at the end."""
    at = 0
    while at + 27 <= len(data):
        base, length, term = struct.unpack_from(">qii", data, at)
        (last_delta,) = struct.unpack_from(">i", data, at + 23)
        yield SeenBatch(base, base + last_delta, term)
        at += 12 + length


@dataclass
class Known:
    """What the checker knows about a partition."""

    term: int = -1
    """The highest that anyone has spoken of."""
    committed: int = 0
    """The highest high watermark of an answer to a question that carried `term`."""
    terms: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By term: the lowest and the highest offset of it that was read."""

    def contradiction(self, batch: SeenBatch) -> str | None:
        """Take a batch in; why it cannot be where it is, if it cannot."""
        first, last = self.terms.get(batch.term, (batch.base_offset, batch.last_offset))
        for term, (other_first, other_last) in self.terms.items():
            if term < batch.term and other_last >= batch.base_offset:
                return f"{batch} lies below offset {other_last} of term {term}"
            if term > batch.term and other_first <= batch.last_offset:
                return f"{batch} lies above offset {other_first} of term {term}"
        self.terms[batch.term] = min(first, batch.base_offset), max(last, batch.last_offset)
        self.term = max(self.term, batch.term)
        return None


class AnswerChecker(CheckedClient):
    """Asks all nodes in turn, each time a question of chance about every partition."""

    def __init__(
        self,
        name: str,
        addresses: Callable[[], Sequence[str]],
        history: History,
        places: Sequence[Place],
        group: str,
        seed: int = 0,
    ) -> None:
        super().__init__(name, "", history)
        self.answer_count = 0
        """Answers that were no refusal."""
        self.known = {place: Known() for place in places}
        self._addresses = addresses
        self._group = group
        self._chance = random.Random(f"{name}/{seed}")
        self._clients: dict[str, RawClient] = {}
        self._questions = (self._ask_fetch, self._ask_beginning, self._ask_end, self._ask_term, self._ask_committed)

    def work(self) -> None:
        try:
            while not self.is_stopping:
                for address in self._addresses():
                    self._ask_node(address)
                self._stopping.wait(_PAUSE_S)
        finally:
            for client in self._clients.values():
                client.close()

    def _ask_node(self, address: str) -> None:
        try:
            client = self._clients.get(address)
            if client is None:
                client = self._clients[address] = RawClient(address, _TIMEOUT_S)
            self._learn_terms(client)
            for place in self.known:
                try:
                    self._chance.choice(self._questions)(client, place)
                except RequestFailed as refused:
                    if refused.code not in ASK_AGAIN:
                        self._accuse(address, f"{refused}, known: {self.known[place]}")
                else:
                    self.answer_count += 1
        except WrongAnswer as wrong:
            self._accuse(address, str(wrong))
        except OSError:
            gone = self._clients.pop(address, None)
            if gone is not None:
                gone.close()

    def _accuse(self, address: str, text: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            now = time.time()
            stamp = f"{time.strftime('%H:%M:%S', time.gmtime(now))}.{int(now * 1_000) % 1_000:03}"
            self.problems.append(f"{stamp} {address}: {text}")

    # ---- questions ------------------------------------------------------------------------------

    def _learn_terms(self, client: RawClient) -> None:
        for (topic, partition), term in client.terms(sorted({place.topic for place in self.known})):
            known = self.known.get(Place(topic, partition))
            if known is not None:
                known.term = max(known.term, term)

    def _ask_fetch(self, client: RawClient, place: Place) -> None:
        known = self.known[place]
        offset = self._chance.choice((0, known.committed, self._chance.randint(0, known.committed)))
        one = int32(place.partition) + int32(known.term) + int64(offset) + int64(-1) + int32(_FETCH_BYTES)
        body = int32(-1) + int32(0) + int32(0) + int32(_FETCH_BYTES) + int8(0) + int32(0) + int32(-1)
        answer = _ask(client, FETCH, 10, body + array([string(place.topic) + array([one])]) + array([]))
        answer.int32()
        answer.int16()
        answer.int32()
        _skip_to_partition(answer)
        answer.int32()
        code, high_watermark, _, start = answer.int16(), answer.int64(), answer.int64(), answer.int64()
        for _ in range(max(0, answer.int32())):
            answer.take(16)
        what = f"Fetch of {place} at {offset} in term {known.term}"
        if code:
            raise RequestFailed(f"{what} (high watermark {high_watermark}, start {start})", code)
        batches = list(read_heads(answer.take(max(0, answer.int32()))))
        seen = f"high watermark {high_watermark}, start {start}, batches {batches[:3]}"
        _demand(high_watermark >= known.committed, what, seen, f"{known.committed} was committed before")
        _demand(start == 0, what, seen, "nothing was ever removed")
        # A node that has too much to send may send nothing. What is sent must begin where it was asked for.
        held = not batches or batches[0].base_offset <= offset <= batches[0].last_offset < high_watermark
        _demand(held, what, seen, "this is not what is there, or not committed")
        known.committed = high_watermark
        for batch in batches:
            contradiction = known.contradiction(batch)
            _demand(contradiction is None, what, seen, str(contradiction))

    def _ask_beginning(self, client: RawClient, place: Place) -> None:
        what = f"ListOffsets of the beginning of {place}"
        found = self._list_offset(client, place, EARLIEST, what)
        _demand(found == 0, what, str(found), "nothing was ever removed")

    def _ask_end(self, client: RawClient, place: Place) -> None:
        acknowledged = self.history.known_offset(place)
        what = f"ListOffsets of the end of {place}"
        found = self._list_offset(client, place, LATEST, what)
        _demand(found > acknowledged, what, str(found), f"{acknowledged} was acknowledged or read before")

    def _list_offset(self, client: RawClient, place: Place, time_ms: int, what: str) -> int:
        one = int32(place.partition) + int32(self.known[place].term) + int64(time_ms)
        answer = _ask(client, LIST_OFFSETS, 4, int32(-1) + int8(0) + array([string(place.topic) + array([one])]))
        answer.int32()
        _skip_to_partition(answer)
        answer.int32()
        code, _, offset, _ = answer.int16(), answer.int64(), answer.int64(), answer.int32()
        if code:
            raise RequestFailed(what, code)
        return offset

    def _ask_term(self, client: RawClient, place: Place) -> None:
        known = self.known[place]
        if not known.terms:
            return
        asked = self._chance.choice(sorted(known.terms))
        one = int32(place.partition) + int32(known.term) + int32(asked)
        answer = _ask(client, OFFSET_FOR_LEADER_EPOCH, 2, array([string(place.topic) + array([one])]))
        answer.int32()
        _skip_to_partition(answer)
        code, _, term, end = answer.int16(), answer.int32(), answer.int32(), answer.int64()
        what = f"OffsetForLeaderEpoch {asked} of {place}, asked in term {known.term}"
        if code:
            raise RequestFailed(what, code)
        _, last = known.terms[asked]
        later = min((first for other, (first, _) in known.terms.items() if other > asked), default=None)
        seen = f"term {term} ends at {end}"
        _demand(term == asked and end > last, what, seen, f"offset {last} of this term was read")
        _demand(later is None or end <= later, what, seen, f"a later term begins at {later}")

    def _ask_committed(self, client: RawClient, place: Place) -> None:
        confirmed = self.history.committed_floor(self._group, place)
        found = client.committed(self._group, place.topic, partition=place.partition)
        what = f"OffsetFetch of {self._group} for {place}"
        _demand(found >= confirmed, what, str(found), f"{confirmed} was confirmed before")


class WrongAnswer(Exception):
    """An answer that cannot be true."""


def _demand(is_so: bool, what: str, seen: str, because: str) -> None:
    if not is_so:
        raise WrongAnswer(f"{what} is answered with {seen}, but {because}")


def _ask(client: RawClient, key: int, version: int, body: bytes) -> Reader:
    number = client.next_id()
    return client.connection.ask(request(key, version, number, body), number)


def _skip_to_partition(answer: Reader) -> None:
    """Past the topic, of an answer about one partition of one topic."""
    assert answer.int32() == 1
    answer.string()
    assert answer.int32() == 1
