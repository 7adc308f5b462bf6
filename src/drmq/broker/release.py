"""The release of DRMQ that this node runs, for display."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

RELEASE_LENGTH_MAX = 32


@cache
def release() -> str:
    """The version of the installed package; empty if DRMQ is not installed as a package."""
    try:
        return version("drmq")[:RELEASE_LENGTH_MAX]
    except PackageNotFoundError:
        return ""
