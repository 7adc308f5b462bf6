"""Sampling while no node answers, or while a gateway has more to do than it can."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.client import Unreachable
from drmq.client.rates import Reading
from drmq.gateway.problems import ProblemError
from drmq.gateway.sampler import Sampler


async def sample_once(error: Exception) -> Sampler:
    """A sampler to which one node answered before, after a sample that failed."""

    async def run(action: Any) -> None:
        raise error

    sampler = Sampler(cast("Any", SimpleNamespace(run=run)))
    sampler.last = {1: Reading([], 0.0)}
    sampler.start()
    async with asyncio.timeout(5):
        await sampler.wait()
    await sampler.stop()
    return sampler


def test_a_busy_gateway_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "drmq.gateway"):
        sampler = asyncio.run(sample_once(ProblemError(503, "too many requests wait for the cluster")))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "no sample was taken: too many requests wait for the cluster")
    ]
    assert sampler.last, "whether nodes answer is not known"


def test_a_gateway_is_not_ready_while_no_node_answers() -> None:
    """Balancers and pages are told by `last` which nodes answer."""
    assert not asyncio.run(sample_once(Unreachable("Broker 1 is not available"))).last
