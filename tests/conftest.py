"""What holds for every test: one hypothesis profile, and Ctrl-C that reaches the processes we start."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import settings

from support.rerun import WORKER_SESSIONS

# Examples may take as long as the machine needs: a busy machine is not a slow parser.
settings.register_profile("drmq", deadline=None, print_blob=True)
settings.load_profile("drmq")

# Hundreds of nodes are started by these tests. Those about the gateway ask for one.
os.environ.setdefault("DRMQ_GATEWAY", "false")
os.environ.setdefault("DRMQ_GRPC_PORT", "0")

# A shell starts background jobs with SIGINT ignored, and every child inherits that: a test that
# interrupts a command would wait for ever. With a handler here, children start with the default.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The same with `nohup` and SIGHUP, which must not end the tests themselves.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    """`make flaky` gives each worker a session: a scheduler that shares the CPU between sessions gives it as much as a
    process that burns CPU. Otherwise all tests together would get as much as one of these."""
    if os.environ.get(WORKER_SESSIONS) and hasattr(config, "workerinput"):
        os.setsid()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Simulations first: some take minutes, and the last one would run while all other workers have nothing to do."""
    items.sort(key=lambda item: "/unit/testing/" not in item.path.as_posix())


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules live to the end. With Python's limits, the garbage collector looked for
    garbage after every 700 new objects, and often through all that lives: a tenth of the CPU time of the unit tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
