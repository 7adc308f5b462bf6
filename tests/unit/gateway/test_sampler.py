"""Sampling while a gateway has more to do than it can."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.gateway.problems import ProblemError
from drmq.gateway.sampler import Sampler


def test_a_busy_gateway_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def run(action: Any) -> None:
            raise ProblemError(503, "too many requests wait for the cluster")

        sampler = Sampler(cast("Any", SimpleNamespace(run=run)))
        sampler.start()
        async with asyncio.timeout(5):
            await sampler.wait()
        await sampler.stop()

    with caplog.at_level(logging.WARNING, "drmq.gateway"):
        asyncio.run(main())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "no sample was taken: too many requests wait for the cluster")
    ]
