"""The pytest plugin of DRMQ: the fixture `drmq_broker` is a fresh broker for each test.

pytest loads this module in every project that has DRMQ installed, so it imports nothing heavy until a test uses the
fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from drmq.testing.broker import Broker


@pytest.fixture
def drmq_broker() -> Iterator[Broker]:
    """A real broker in this process, in memory, on a free port; `drmq_broker.bootstrap_servers` is its address."""
    from drmq.testing.broker import Broker

    with Broker() as broker:
        yield broker
