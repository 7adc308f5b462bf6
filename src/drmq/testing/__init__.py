"""For tests, ours and yours: a real broker in the process, and fake worlds to run one in.

`Broker` is a real node in a thread, `cluster(nodes=3)` several of them, with faults to order. `FakeFiles` is a disk
in memory on which the power can be cut.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drmq.testing.broker import Broker
    from drmq.testing.clusters import Cluster, cluster
    from drmq.testing.files import FakeFiles

__all__ = ["Broker", "Cluster", "FakeFiles", "cluster"]

_HOMES = {"Broker": "broker", "Cluster": "clusters", "FakeFiles": "files", "cluster": "clusters"}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"drmq.testing.{home}"), name)
