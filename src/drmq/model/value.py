"""A decorator for small value classes whose instances are created very often."""

from __future__ import annotations

from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make `cls` a class of values: compared and hashed by their fields, and never changed.

    The type checker rejects an assignment to a field. Nothing checks that at run time, because a frozen dataclass sets
    each field through a function call and takes four times as long to create. Use this for values that are created per
    message or per append, and a frozen dataclass everywhere else.
    """
    # Imported here because importing `dataclasses` is slow: programs that need only an id or an error from this
    # package, such as the command line, start faster without it.
    from dataclasses import dataclass

    return dataclass(slots=True, unsafe_hash=True)(cls)
