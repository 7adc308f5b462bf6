"""The pytest plugin of DRMQ: fixtures with real brokers and clusters.

| Fixture | Scope | What it is |
| --- | --- | --- |
| `drmq_broker` | test | a fresh broker in memory |
| `drmq_session_broker` | session | one broker for all tests that use it |
| `drmq_topic` | test | the name of a new topic of `drmq_session_broker` |
| `drmq_cluster` | test | a fresh cluster of three nodes |
| `drmq_session_cluster` | session | one cluster of three nodes for all tests that use it |

pytest loads this module in every project that has DRMQ installed, so it imports nothing heavy until a test uses a
fixture. pytest also marks all modules of a package with a plugin for the rewriting of assertions, which means to
compile each of them again: a second of CPU for the first fixture in a fresh environment. The assertions of DRMQ are no
tests, so its modules are imported in the usual way, from the compiled files that were made when it was installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from drmq.testing.broker import Broker
    from drmq.testing.clusters import Cluster


class _UsualImports:
    """Finds the modules of DRMQ as Python does, before pytest's own finder gets to rewrite them."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith(("drmq.", "pyspark_drmq")) else None


if not any(getattr(finder, "__name__", "") == _UsualImports.__name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _UsualImports)


@pytest.fixture
def drmq_broker() -> Iterator[Broker]:
    """A real broker in this process, in memory, on a free port; `drmq_broker.bootstrap_servers` is its address."""
    from drmq.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def drmq_session_broker() -> Iterator[Broker]:
    """A broker as `drmq_broker`, shared by all tests of the session: use `drmq_topic`, or other names in each test."""
    from drmq.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def drmq_topic(drmq_session_broker: Broker) -> str:
    """The name of a new topic of `drmq_session_broker`, with one partition."""
    return drmq_session_broker.create_topic()


@pytest.fixture
def drmq_cluster() -> Iterator[Cluster]:
    """A real cluster of three nodes in this process, with nodes to kill, pause and cut off."""
    from drmq.testing.clusters import Cluster

    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def drmq_session_cluster() -> Iterator[Cluster]:
    """A cluster as `drmq_cluster`, shared by all tests of the session. A test that injects a fault must heal it."""
    from drmq.testing.clusters import Cluster

    with Cluster(3) as cluster:
        yield cluster
