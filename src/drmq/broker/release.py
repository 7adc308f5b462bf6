"""The release of DRMQ that this node runs, shown to operators of clusters with several releases."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

RELEASE_LENGTH_MAX = 32


@cache
def release() -> str:
    """The version of the installed package; empty if DRMQ runs from a source directory and is not installed."""
    try:
        return version("drmq")[:RELEASE_LENGTH_MAX]
    except PackageNotFoundError:
        return ""
