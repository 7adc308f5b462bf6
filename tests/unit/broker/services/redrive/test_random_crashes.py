"""A redrive that is ended at any step goes on at another node, and moves every letter exactly once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drmq.broker.cluster.membership import OutcomeOpen
from drmq.broker.services.redrive.letters import Letter
from drmq.broker.services.redrive.run import redriven_batch
from drmq.leases import RedriveBegun, SavedBatch, StartRedrive
from drmq.leases.letters import size_of
from drmq.model import ApiError, ErrorCode

from .simulation import TOPIC, Calm, Run, run_seed


@pytest.mark.parametrize("seed", range(30))
def test_every_letter_is_moved_exactly_once(seed: int) -> None:
    run_seed(seed)


class LateWhole(Run):
    """The first batch arrives late: when a part of its letters is gone, and the rest is about to be appended."""

    def __init__(self) -> None:
        super().__init__(0)
        self.random = Calm(0)
        self.is_first = True
        self.refusals: list[ErrorCode] = []

    async def append(self, batch: SavedBatch, producer_id: int, letters: Sequence[Letter]) -> int:
        if self.is_first and len(letters) > 1:
            self.is_first = False
            self.in_flight.append((batch.origin, redriven_batch(batch, producer_id, letters)))
            self.starts[batch.partition] = letters[0].offset + 1
            raise OutcomeOpen(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        if self.in_flight and self.in_flight[0][0] == batch.origin:
            assert len(letters) == size_of(batch.runs) - 1, "the first one is gone"
            self.arrive()
        try:
            return await super().append(batch, producer_id, letters)
        except ApiError as error:
            self.refusals.append(error.code)
            raise


def test_what_is_left_of_a_batch_is_refused_if_the_whole_arrives_before_it() -> None:
    """Both have the same numbers, so that the origin takes one of the two. The letters are done either way."""
    run = LateWhole()
    run.deleted.add("b")
    assert isinstance(run.harness.ask(StartRedrive(TOPIC, 1, 0, "", "", run.bounds())), RedriveBegun)
    while TOPIC in run.harness.shard.redrives.running:
        run.work()
        run.check()
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER in run.refusals
    run.drain()
