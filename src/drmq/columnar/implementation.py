"""Which builder is used: the compiled one if it was built for this interface, otherwise the one in Python.

The environment variable DRMQ_COLUMNAR can force either: `pure` to exclude the compiled code when a result looks wrong,
`compiled` to get an error that says why the compiled code is missing instead of silently using the slow one. It is read
once, when the package is first imported.
"""

from __future__ import annotations

import os
from typing import Literal

from drmq.columnar import pure
from drmq.columnar.outcome import INTERFACE, Builder

VARIABLE = "DRMQ_COLUMNAR"


def choose(wanted: str | None) -> tuple[Literal["compiled", "pure"], type[Builder]]:
    """Name and class of the builder, for the given value of the variable."""
    if wanted not in (None, "", "pure", "compiled"):
        raise ImportError(f"{VARIABLE}={wanted}: it is `pure`, `compiled` or not set")
    if wanted == "pure":
        return "pure", pure.Builder
    try:
        from drmq.columnar import _decoder
    except ImportError as error:
        reason = str(error)
    else:
        if _decoder.INTERFACE == INTERFACE:
            return "compiled", _decoder.Builder
        reason = f"it was built for interface {_decoder.INTERFACE}, and this is {INTERFACE}"
    if wanted == "compiled":
        raise ImportError(
            f"{VARIABLE}=compiled, but the compiled decoder cannot be used: {reason}. "
            "Install DRMQ again where there are a C compiler and Python's headers, or unset the variable"
        )
    return "pure", pure.Builder


IMPLEMENTATION, BUILDER = choose(os.environ.get(VARIABLE))
