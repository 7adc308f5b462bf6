"""Test support, for this project and for its users: real brokers in the process, and simulated environments for them.

`Broker` is a real node in a thread, and `cluster(nodes=3)` starts several, with methods that inject faults. `FakeFiles`
is a disk in memory whose power can be cut.
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
