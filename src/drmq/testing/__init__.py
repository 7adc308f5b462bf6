"""For tests, ours and yours: a real broker in the process, and fake worlds to run one in.

`Broker` is a real node in a thread. `FakeFiles` is a disk in memory on which the power can be cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drmq.testing.broker import Broker
    from drmq.testing.files import FakeFiles

__all__ = ["Broker", "FakeFiles"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from drmq.testing.broker import Broker

        return Broker
    if name == "FakeFiles":
        from drmq.testing.files import FakeFiles

        return FakeFiles
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
