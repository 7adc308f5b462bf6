"""What a planted bug is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A wrong line in place of a right one."""

    name: str
    module: str
    right: str
    wrong: str
