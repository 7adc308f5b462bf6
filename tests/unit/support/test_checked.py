"""The rules of `support.checked`: for each a history that it must flag, and a near miss that it must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support import checked
from support.checked import BadPayload, History, Look, Place, Send, Stamp, payload, read_stamp, report, violations

HERE = Place("topic", 0)
THERE = Place("topic", 1)


class Run:
    """Writes a history in few words."""

    def __init__(self) -> None:
        self.history = History()

    def send(self, sequence: int, *, acked: int | None = None, place: Place = HERE) -> Send:
        stamp = Stamp(place, "p", sequence)
        send = self.history.on_send(stamp, payload(stamp))
        if acked is not None:
            self.history.on_acked(send, acked)
        return send

    def read(
        self,
        offset: int,
        sequence: int,
        *,
        final: bool = False,
        reader: str = "c",
        sitting: int = 0,
        place: Place = HERE,
    ) -> None:
        value = payload(Stamp(HERE, "p", sequence))
        self.history.on_read(reader, sitting, place, offset, value, final=final)

    def found(self, rule: Callable[[History], Iterator[str]]) -> bool:
        return bool(list(rule(self.history)))


@pytest.fixture
def run() -> Run:
    return Run()


def test_payload_says_what_it_is() -> None:
    """A stamp survives the way into a payload and back, at any size."""
    stamp = Stamp(Place("a.b-c", 7), "producer-1", 123)
    for size in (0, 1, 50, 5_000):
        value = payload(stamp, size)
        assert len(value) >= size
        assert read_stamp(value) == stamp


@pytest.mark.parametrize(
    "damage", [b"", b"abc", payload(Stamp(HERE, "p", 1))[:-1], b"x" + payload(Stamp(HERE, "p", 1))]
)
def test_damaged_payload_is_noticed(damage: bytes) -> None:
    """A changed, cut or foreign payload is no stamp."""
    with pytest.raises(BadPayload):
        read_stamp(damage)


def test_empty_and_sound_histories_pass(run: Run) -> None:
    """Nothing happened, and everything went well: no rule complains."""
    assert violations(run.history) == []
    for number in range(3):
        run.send(number, acked=number)
        run.read(number, number)
        run.read(number, number, final=True)
    run.history.on_confirmed(run.history.on_commit("g", HERE, 2))
    run.history.on_look(Look("g", HERE, 2, run.history.committed_floor("g", HERE)))
    assert violations(run.history) == []


def test_r1_offset_below_what_was_known(run: Run) -> None:
    run.read(5, 1)
    run.send(2, acked=5)
    assert run.found(checked.acked_above_known)


def test_r1_counts_from_the_start_of_the_send(run: Run) -> None:
    """An offset that became known while the send was under way says nothing."""
    send = run.send(2)
    run.read(5, 1)
    run.send(3, acked=0, place=THERE)
    run.history.on_acked(send, 4)
    assert not run.found(checked.acked_above_known)


def test_what_is_acknowledged_without_an_offset_is_looked_for(run: Run) -> None:
    run.read(0, 0)
    run.read(0, 0, final=True)
    run.send(0, acked=0, place=THERE)
    first, second = run.send(1), run.send(2)
    run.history.on_acked(first, None)
    run.history.on_acked(second, None)
    assert not run.found(checked.acked_above_known)
    assert not run.found(checked.acked_once)
    run.read(1, 1, final=True)
    assert [text for text in checked.acked_is_there(run.history) if "without an offset" in text] == [
        f"R6: {second.stamp}, acknowledged without an offset, is lost"
    ]
    run.read(2, 2, final=True)
    assert not [text for text in checked.acked_is_there(run.history) if "without an offset" in text]
    assert not run.found(checked.open_only_above_known)
    late = run.send(3)
    run.history.on_acked(late, None)
    run.read(2, 3, reader="d")
    assert run.found(checked.open_only_above_known)


def test_r2_offset_given_twice(run: Run) -> None:
    run.send(1, acked=4)
    run.send(2, acked=4, place=THERE)
    assert not run.found(checked.acked_once)
    run.send(3, acked=4)
    assert run.found(checked.acked_once)


def test_r3_reader_steps_back(run: Run) -> None:
    run.read(1, 1)
    run.read(1, 1, sitting=1)
    run.read(1, 1, reader="d")
    assert not run.found(checked.reads_increase)
    run.read(1, 1)
    assert run.found(checked.reads_increase)


def test_r4_other_content(run: Run) -> None:
    run.send(1, acked=0)
    run.send(2)
    run.read(0, 1)
    assert not run.found(checked.content_as_sent)
    run.read(0, 2, reader="d")
    assert run.found(checked.content_as_sent)


def test_r4_key_and_headers_count(run: Run) -> None:
    stamp = Stamp(HERE, "p", 1)
    run.history.on_acked(run.history.on_send(stamp, payload(stamp), b"key", [("h", b"1")]), 0)
    run.history.on_read("c", 0, HERE, 0, payload(stamp), b"key", [("h", b"1")])
    assert not run.found(checked.content_as_sent)
    run.history.on_read("d", 0, HERE, 0, payload(stamp), b"key", [("h", b"2")])
    assert run.found(checked.content_as_sent)


def test_r5_record_that_nobody_sent(run: Run) -> None:
    run.send(1)
    run.read(0, 1)
    assert not run.found(checked.nothing_invented)
    run.read(1, 2)
    assert run.found(checked.nothing_invented)


def test_r5_record_of_another_partition(run: Run) -> None:
    run.send(1)
    run.read(0, 1, place=THERE)
    assert run.found(checked.nothing_invented)


def test_r5_damaged_record(run: Run) -> None:
    run.history.on_read("c", 0, HERE, 0, b"rubbish")
    assert run.found(checked.nothing_invented)


def test_r6_lost_record(run: Run) -> None:
    run.send(1, acked=0)
    run.send(2)
    run.read(0, 1, final=True)
    assert not run.found(checked.acked_is_there)
    run.send(3, acked=1)
    run.read(1, 3)
    assert run.found(checked.acked_is_there), "read in passing is not there at the end"


def test_r7_failed_record_appears(run: Run) -> None:
    send = run.send(1)
    run.read(0, 1)
    assert not run.found(checked.open_only_above_known)
    run.history.on_failed(send)
    assert run.found(checked.open_only_above_known)


def test_r7_open_record_appears_in_the_past(run: Run) -> None:
    run.send(1, acked=5)
    run.send(2)
    run.read(6, 2)
    assert not run.found(checked.open_only_above_known)
    run.read(3, 2, reader="d")
    assert run.found(checked.open_only_above_known)


def test_r8_duplicate(run: Run) -> None:
    run.send(1)
    run.read(0, 1)
    run.read(0, 1, final=True)
    assert not run.found(checked.nothing_twice)
    run.read(1, 1, final=True)
    assert run.found(checked.nothing_twice)


def test_seen_record_vanishes(run: Run) -> None:
    run.read(0, 1)
    run.read(0, 1, final=True)
    assert not run.found(checked.seen_stays)
    run.read(1, 2)
    assert run.found(checked.seen_stays)


def test_seen_record_changes(run: Run) -> None:
    run.read(0, 1)
    run.read(0, 2, final=True)
    assert run.found(checked.seen_stays)


def test_commit_goes_back(run: Run) -> None:
    history = run.history
    history.on_confirmed(history.on_commit("g", HERE, 5))
    history.on_commit("g", HERE, 3)  # never confirmed
    history.on_confirmed(history.on_commit("h", HERE, 3))
    assert not run.found(checked.commits_stay)
    history.on_confirmed(history.on_commit("g", HERE, 3))
    assert run.found(checked.commits_stay)


@pytest.mark.parametrize(("seen", "is_wrong"), [(5, False), (7, False), (3, True), (-1, True), (6, True)])
def test_look_at_a_commit(run: Run, seen: int, is_wrong: bool) -> None:
    """Of 5 confirmed and 7 open, both may be seen; what is older, missing or unheard of may not."""
    history = run.history
    history.on_confirmed(history.on_commit("g", HERE, 3))
    history.on_confirmed(history.on_commit("g", HERE, 5))
    floor = history.committed_floor("g", HERE)
    history.on_commit("g", HERE, 7)
    history.on_look(Look("g", HERE, seen, floor))
    assert run.found(checked.commits_stay) is is_wrong


def test_report_is_short() -> None:
    text = report([f"R{number}" for number in range(100)], limit=2)
    assert text.splitlines() == ["100 violations:", "R0", "R1", "... and 98 more"]
