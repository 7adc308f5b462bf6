"""A broker on a fake disk and clock, for tests that need a whole one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drmq.testing import FakeFiles
from support.broker_harness import Harness


@pytest.fixture
def files() -> FakeFiles:
    """The broker's disk, for tests that do something to it."""
    return FakeFiles()


@pytest.fixture
def harness(files: FakeFiles) -> Iterator[Harness]:
    with Harness(files) as harness:
        yield harness
