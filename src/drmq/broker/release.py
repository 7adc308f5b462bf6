"""Which release of DRMQ this is, for people who look at a cluster of several."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

RELEASE_LENGTH_MAX = 32


@cache
def release() -> str:
    """The version of the installed package; nothing where DRMQ runs from a directory that was never installed."""
    try:
        return version("drmq")[:RELEASE_LENGTH_MAX]
    except PackageNotFoundError:
        return ""
