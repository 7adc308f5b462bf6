"""The terms in which a Kafka message is described: one dataclass per message, one field spec per field.

A message class lists its fields once, with the versions in which each is on the wire:

    @message(ApiKey.HEARTBEAT, versions=(0, 4), flexible=4)
    @dataclass(slots=True)
    class HeartbeatRequest:
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

The class is both the type that handlers use, whichever version arrived, and the schema from which `codec` compiles a
reader and a writer for each version. A field that a version does not have keeps its default when read and is left out
when written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_LATEST = 32767

NO_AUTHORIZED_OPERATIONS = -(2**31)
"""The protocol's value for a set of authorized operations that the client did not ask for."""


class Versions(NamedTuple):
    """A closed range of versions; `"3+"`, `"0-2"` and `"7"` in the schemas."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text.endswith("+"):
            return cls(int(text[:-1]), _LATEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


class FieldSpec(NamedTuple):
    """How one field is encoded. `kind` is a primitive's name, `"struct"` or `"array"`."""

    kind: str
    versions: Versions
    nullable: Versions | None = None
    tag: int | None = None
    element: FieldSpec | None = None
    struct: type | None = None


class MessageSpec(NamedTuple):
    """Properties of a whole message: its API, its versions, and the first version that is flexible."""

    api_key: int
    first_version: int
    last_version: int
    flexible_from: int


SPEC_KEY = "drmq.wire"
_specs: dict[type, MessageSpec] = {}


def message(api_key: int, versions: tuple[int, int], flexible: int | None) -> Callable[[type[T]], type[T]]:
    """Mark a dataclass as the body of a request or response. `flexible=None`: no version is."""

    def mark(cls: type[T]) -> type[T]:
        _specs[cls] = MessageSpec(api_key, versions[0], versions[1], _LATEST if flexible is None else flexible)
        return cls

    return mark


def spec_of(cls: type) -> MessageSpec:
    """The spec that `message` recorded for this class."""
    return _specs[cls]


def _field(
    kind: str,
    versions: str,
    default: Any,
    *,
    nullable: str | None = None,
    tag: int | None = None,
    element: FieldSpec | None = None,
    struct: type | None = None,
) -> Any:
    spec = FieldSpec(
        kind,
        Versions.parse(versions),
        None if nullable is None else Versions.parse(nullable),
        tag,
        element,
        struct,
    )
    metadata = {SPEC_KEY: spec}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    return _field("int8", versions, default, tag=tag)


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    return _field("int16", versions, default, tag=tag)


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    return _field("uint16", versions, default, tag=tag)


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    return _field("int32", versions, default, tag=tag)


def uint32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    return _field("uint32", versions, default, tag=tag)


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> Any:
    return _field("int64", versions, default, tag=tag)


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None) -> Any:
    return _field("float64", versions, default, tag=tag)


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> Any:
    return _field("bool", versions, default, tag=tag)


def uuid(versions: str = "0+", *, tag: int | None = None) -> Any:
    """Sixteen raw bytes; all zero means none."""
    return _field("uuid", versions, bytes(16), tag=tag)


def string(
    versions: str = "0+", *, nullable: str | None = None, default: str | None = "", tag: int | None = None
) -> Any:
    return _field("string", versions, default, nullable=nullable, tag=tag)


def binary(
    versions: str = "0+", *, nullable: str | None = None, default: bytes | None = b"", tag: int | None = None
) -> Any:
    return _field("bytes", versions, default, nullable=nullable, tag=tag)


def payload(
    versions: str = "0+", *, nullable: str | None = None, default: bytes | None = b"", tag: int | None = None
) -> Any:
    """Bytes of any length that are not copied when they are read: a slice of the buffer that the message came from."""
    return _field("payload", versions, default, nullable=nullable, tag=tag)


def structure(
    cls: type, versions: str = "0+", *, nullable: str | None = None, default: Any = ..., tag: int | None = None
) -> Any:
    """One nested structure; its default is the structure with all its own defaults."""
    return _field("struct", versions, cls if default is ... else default, nullable=nullable, tag=tag, struct=cls)


def array(
    of: type | str, versions: str = "0+", *, nullable: str | None = None, default: Any = ..., tag: int | None = None
) -> Any:
    """A list of structures, or of a primitive given by its name (`"int32"`, `"string"`, `"uuid"`)."""
    always = Versions(0, _LATEST)
    element = FieldSpec(of, always) if isinstance(of, str) else FieldSpec("struct", always, struct=of)
    return _field("array", versions, list if default is ... else default, nullable=nullable, tag=tag, element=element)
