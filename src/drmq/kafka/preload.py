"""Imports everything that serving may need, before a node serves.

Modules are imported when they are first used, so that commands and tests start fast. A node must not do that while it
serves: an import opens files, and fails if the process has no descriptors left, or if its files have been replaced by
those of another release meanwhile. A request would then fail for a reason that has nothing to do with it.
"""

from __future__ import annotations

from importlib import import_module

from drmq.wire import APIS

_MODULES = (
    "drmq.wire.compiler",
    "cramjam",
    # What the standard library imports when it is first used: to start threads, to decode text, to print a traceback.
    "concurrent.futures.thread",
    "encodings.ascii",
    "encodings.idna",
    "linecache",
    "tokenize",
    "traceback",
)


def import_all() -> None:
    """Import the handler and the messages of every API, and what they use."""
    for api in APIS.values():
        import_module(f"drmq.kafka.{api.key.name.lower()}")
        # These properties import the module of the messages.
        assert api.request is not None, api
        assert api.response is not None, api
    for name in _MODULES:
        import_module(name)
