"""What the HTTP door answers, as messages of gRPC: the fields with the same names."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message
from msgspec import Struct

M = TypeVar("M", bound=Message)


def filled(target: M, view: Struct) -> M:
    """The message with the fields of `view` that it has too. Nulls stay unset; fields with messages are left alone."""
    for field in target.DESCRIPTOR.fields:
        value = getattr(view, field.name, None)
        if value is None or field.message_type is not None:
            continue
        if field.is_repeated:
            getattr(target, field.name).extend(value)
        else:
            setattr(target, field.name, value)
    return target
