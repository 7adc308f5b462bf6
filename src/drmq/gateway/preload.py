"""Imports everything that serving may need, before a gateway listens.

The problem is that of a node (`drmq.kafka.preload`): an import opens files. It fails if the process has no descriptors
left, or if its files have been replaced by those of another release meanwhile, and a request then fails for a reason
that has nothing to do with it. gRPC is not imported here: it is started before the gateway listens, if it is on at all.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

_MODULES = (
    # Clients import these when they are first used, so that commands start fast.
    "confluent_kafka",
    "cramjam",
    "drmq.wire.compiler",
    # What the standard library imports when it is first used: to start threads, to decode text, to print a traceback.
    "concurrent.futures.thread",
    "encodings.ascii",
    "encodings.idna",
    "linecache",
    "tokenize",
    "traceback",
)
_PARTS_OF_PACKAGES = ("anyio._backends._asyncio", "anyio._core._fileio")
"""What packages import when they are first used, here to send files. Other versions of them may not have these."""


def import_all() -> None:
    """Import what the clients and the server of a gateway use. Raises `ImportError` for a package that is missing."""
    for name in _MODULES:
        import_module(name)
    for name in _PARTS_OF_PACKAGES:
        with suppress(ImportError):
            import_module(name)
