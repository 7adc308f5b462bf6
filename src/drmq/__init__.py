"""DRMQ: a reliable message queue that any Kafka client can use.

This module is imported by every command and by every test that has DRMQ installed, so it imports
nothing. `drmq.testing` is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drmq import testing as testing

__all__ = ["__version__", "testing"]


def __getattr__(name: str) -> Any:
    if name == "testing":
        import importlib

        return importlib.import_module("drmq.testing")
    if name == "__version__":
        # The version is written down once, in pyproject.toml; reading it takes a few milliseconds.
        from importlib.metadata import version

        return version("drmq")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
