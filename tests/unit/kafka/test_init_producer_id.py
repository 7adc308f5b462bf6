"""InitProducerId: an id that nobody had before, also after a restart."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.testing.files import FakeFiles
from drmq.wire import ApiKey
from drmq.wire.messages.init_producer_id import InitProducerIdRequest
from support.broker_harness import Harness
from support.kafka_harness import versions


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_each_call_gives_a_new_id(harness: Harness, version: int) -> None:
    answers = [harness.ask(InitProducerIdRequest(), version) for _ in range(3)]
    assert all(answer.error_code == 0 and answer.producer_epoch == 0 for answer in answers)
    assert len({answer.producer_id for answer in answers}) == 3


def test_ids_are_never_given_twice_over_crashes() -> None:
    """An id that was given out before a power cut is not given out after it."""
    files = FakeFiles()
    given: list[int] = []
    for seed in range(4):
        harness = Harness(files)
        given += [harness.ask(InitProducerIdRequest(), 4).producer_id for _ in range(3)]
        harness.crash()
        files = files.after_power_cut(seed)
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("version", range(3, versions(ApiKey.INIT_PRODUCER_ID).stop))
def test_an_id_and_its_epoch_go_together(harness: Harness, version: int) -> None:
    """A producer sends what it has after an error. One without the other is no state that a producer can be in."""
    for producer_id, epoch, code in ((5, -1, 42), (-1, 0, 42), (5, 0, 0), (-1, -1, 0)):
        request = InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
        answer = harness.ask(request, version)
        assert (answer.error_code, answer.producer_id >= 0) == (code, code == 0), (producer_id, epoch)


def test_transactional_ids_are_refused_for_good(harness: Harness) -> None:
    answer = harness.ask(InitProducerIdRequest("tx", 1000), 4)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
