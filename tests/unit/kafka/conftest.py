"""Each test has a broker in memory of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.broker_harness import Harness


@pytest.fixture
def harness() -> Iterator[Harness]:
    with Harness() as harness:
        yield harness
