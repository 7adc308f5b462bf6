"""Values of any message in any version, made from its schema."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from drmq.wire import KNOWN_APIS, encode
from drmq.wire.fields import SPEC_KEY, FieldSpec

CASES = [
    (message, version)
    for api in KNOWN_APIS.values()
    for message in (api.request, api.response)
    for version in range(api.version_min, api.version_max + 1)
]
"""Every message in every version that it has."""

CASE_IDS = [f"{message.__name__}-v{version}" for message, version in CASES]

ERROR_CODES = st.sampled_from([0, -1, 1, 3, 35, 89, 119])
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "uuid": st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
    # A hundred and thirty bytes and more have a compact length of two bytes.
    "string": st.text(max_size=5) | st.just("é" * 65),
    "bytes": st.binary(max_size=5) | st.just(bytes(127)),
    "payload": st.binary(max_size=5) | st.just(bytes(127)),
}
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    # The oracle has an enum here, and dates and durations there, which do not reach so far.
    "error_code": ERROR_CODES,
    "retention_time_ms": st.integers(-1, 2**40),
    "log_append_time_ms": st.integers(-1, 2**40),
    "session_lifetime_ms": st.integers(0, 2**40),
}


def spec_of_field(field: dataclasses.Field[Any]) -> FieldSpec:
    spec: FieldSpec = field.metadata[SPEC_KEY]
    return spec


_strategies: dict[tuple[type, int], st.SearchStrategy[Any]] = {}


def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Instances of `cls` whose fields hold anything if this version has them, and their defaults if not."""
    if (cls, version) not in _strategies:
        _strategies[cls, version] = _build(cls, version)
    return _strategies[cls, version]


def _build(cls: type, version: int) -> st.SearchStrategy[Any]:
    values = {
        field.name: _BY_NAME[field.name] if field.name in _BY_NAME else _values(spec_of_field(field), version)
        for field in dataclasses.fields(cls)
        if version in spec_of_field(field).versions
    }
    return st.builds(cls, **values)


def _values(spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    if spec.kind == "struct":
        assert spec.struct is not None
        found = messages(spec.struct, version)
    elif spec.kind == "array":
        assert spec.element is not None
        found = st.lists(_values(spec.element, version), max_size=2)
    else:
        found = _PRIMITIVES[spec.kind]
    if spec.nullable is not None and version in spec.nullable:
        return st.none() | found
    return found


def encoded(value: object, version: int) -> bytes:
    out = bytearray()
    encode(value, version, out)
    return bytes(out)


def filled(cls: type, version: int, count: int = 2, text: str = "ab", nulls: bool = False) -> Any:
    """One instance with every field set: `count` elements in each array, `text` in each string.

    With `nulls`, what this version allows to be null is null.
    """
    values = {}
    for number, field in enumerate(dataclasses.fields(cls), start=1):
        spec = spec_of_field(field)
        if version in spec.versions:
            values[field.name] = _filling(spec, version, count, text, nulls, number)
    return cls(**values)


def _filling(spec: FieldSpec, version: int, count: int, text: str, nulls: bool, number: int) -> Any:
    if nulls and spec.nullable is not None and version in spec.nullable:
        return None
    match spec.kind:
        case "struct":
            assert spec.struct is not None
            return filled(spec.struct, version, count, text, nulls)
        case "array":
            assert spec.element is not None
            return [_filling(spec.element, version, count, text, nulls, number) for _ in range(count)]
        case "string":
            return text
        case "bytes" | "payload":
            return text.encode()
        case "uuid":
            return bytes(range(number, number + 16))
        case "bool":
            return True
    return number


def floods(cls: type, version: int, size: int) -> list[Any]:
    """Messages in which one array has `size` elements that take as few bytes as they can."""
    found = []
    for text, nulls, inner in [("", False, 0), ("", True, 0), ("", False, 1), ("abc", False, 0)]:
        for path in _arrays(cls, version):
            value = filled(cls, version, 0, text, nulls)
            _flood(value, path, version, size, (text, nulls, inner))
            found.append(value)
    return found


def _arrays(cls: type, version: int) -> list[list[dataclasses.Field[Any]]]:
    """Every way from a message to an array in it, as the fields that lead there."""
    paths = []
    for field in dataclasses.fields(cls):
        spec = spec_of_field(field)
        if version in spec.versions and spec.element is not None:
            paths.append([field])
            if spec.element.struct is not None:
                paths += [[field, *rest] for rest in _arrays(spec.element.struct, version)]
    return paths


def _flood(
    value: Any, path: list[dataclasses.Field[Any]], version: int, size: int, lean: tuple[str, bool, int]
) -> None:
    field, *rest = path
    element = spec_of_field(field).element
    assert element is not None
    text, nulls, inner = lean
    if rest:
        assert element.struct is not None
        only = filled(element.struct, version, 0, text, nulls)
        _flood(only, rest, version, size, lean)
        setattr(value, field.name, [only])
    else:
        setattr(value, field.name, [_filling(element, version, inner, text, nulls, 1) for _ in range(size)])
