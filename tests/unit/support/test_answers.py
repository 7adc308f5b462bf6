"""`support.answers` on a broker: nothing to say about one that is right, and a word about each thing that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from drmq.testing import Broker
from support.answers import AnswerChecker, Known, SeenBatch
from support.checked import History, Place, Stamp, payload
from support.polling import eventually
from support.raw_client import RawClient

PLACE, GROUP = Place("asked", 0), "asking"
STAMP = Stamp(PLACE, "test", 0)
RECORDS = 10


@pytest.fixture
def address() -> Iterator[str]:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic(PLACE.topic)
        for _ in range(RECORDS):
            client.produce(PLACE.topic, [b"x"])
        client.commit(GROUP, PLACE.topic, 4)
        yield broker.bootstrap_servers


def asked(address: str, history: History, until: Callable[[AnswerChecker], bool]) -> AnswerChecker:
    """A checker that has worked until it has seen enough."""
    checker = AnswerChecker("answers", lambda: [address], history, [PLACE], GROUP)
    checker.start()
    eventually(lambda: until(checker), what=f"enough answers; problems: {checker.problems}")
    checker.ask_to_stop()
    checker.join()
    return checker


def committed(history: History, offset: int) -> None:
    history.on_confirmed(history.on_commit(GROUP, PLACE, offset))


def test_a_broker_that_is_right_is_left_alone(address: str) -> None:
    history = History()
    committed(history, 4)
    history.on_acked(history.on_send(STAMP, payload(STAMP)), RECORDS - 1)
    checker = asked(address, history, lambda checker: checker.answer_count > 60)
    assert not checker.problems
    assert checker.known[PLACE].committed == RECORDS
    assert checker.known[PLACE].terms == {checker.known[PLACE].term: (0, RECORDS - 1)}


def test_a_commit_that_is_forgotten(address: str) -> None:
    history = History()
    committed(history, 5)
    checker = asked(address, history, lambda checker: bool(checker.problems))
    assert "OffsetFetch" in checker.problems[0]
    assert "5 was confirmed before" in checker.problems[0]


def test_an_acknowledged_record_that_is_behind_the_end(address: str) -> None:
    history = History()
    history.on_acked(history.on_send(STAMP, payload(STAMP)), RECORDS)
    checker = asked(address, history, lambda checker: bool(checker.problems))
    assert f"is answered with {RECORDS}, but {RECORDS} was acknowledged" in checker.problems[0]


def test_an_offset_that_is_out_of_range(address: str) -> None:
    with RawClient(address) as client:
        client.delete_records(PLACE.topic, 3)
    checker = asked(address, History(), lambda checker: any("error code 1" in text for text in checker.problems))
    assert any("Fetch" in text and "at 0 in term" in text for text in checker.problems)


def test_terms_do_not_overlap() -> None:
    known = Known()
    assert known.contradiction(SeenBatch(0, 4, 1)) is None
    assert known.contradiction(SeenBatch(5, 9, 2)) is None
    below, above = known.contradiction(SeenBatch(4, 4, 2)), known.contradiction(SeenBatch(7, 7, 1))
    assert below == "SeenBatch(base_offset=4, last_offset=4, term=2) lies below offset 4 of term 1"
    assert above == "SeenBatch(base_offset=7, last_offset=7, term=1) lies above offset 5 of term 2"
    assert known.terms == {1: (0, 4), 2: (5, 9)}
