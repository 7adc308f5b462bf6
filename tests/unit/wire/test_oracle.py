"""Our schemas and bytes against those of kio, which is generated from Kafka's own schemas."""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
import uuid
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from drmq.wire import KNOWN_APIS, ApiKey, decode
from drmq.wire.fields import FieldSpec, spec_of
from support.kafka_apis import KAFKA_APIS

from .samples import CASE_IDS, CASES, encoded, messages, spec_of_field

# kio 0.6.5 stops at 4; the fields of 5 (KIP-1242) are checked in `test_messages`.
KIO_LACKS = {(ApiKey.API_VERSIONS, 5)}

KNOWN = [
    pytest.param(message, version, id=name)
    for (message, version), name in zip(CASES, CASE_IDS, strict=True)
    if (spec_of(message).api_key, version) not in KIO_LACKS and not ApiKey(spec_of(message).api_key).is_own
]


def kio_class(message: type, version: int) -> Any:
    load = load_request_schema if message.__name__.endswith("Request") else load_response_schema
    return load(spec_of(message).api_key, version)


def kio_name(field: dataclasses.Field[Any], names: set[str]) -> str:
    """Durations and dates are typed in kio, so their names have lost the unit."""
    return field.name if field.name in names else field.name.removesuffix("_ms")


@cache
def kio_fields(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(cls)
    return {field.name: (field, hints[field.name]) for field in dataclasses.fields(cls)}


def inner_class(hint: Any) -> Any:
    """The entity inside `Entity`, `Entity | None`, `tuple[Entity, ...]` or `tuple[Entity, ...] | None`."""
    for part in [hint, *typing.get_args(hint)]:
        for candidate in [part, *typing.get_args(part)]:
            if dataclasses.is_dataclass(candidate):
                return candidate
    return None


def to_kio(value: Any, cls: type, version: int) -> Any:
    """The kio entity that holds the same values."""
    known = kio_fields(cls)
    arguments = {}
    for field in dataclasses.fields(value):
        if version not in spec_of_field(field).versions:
            continue
        name = kio_name(field, set(known))
        arguments[name] = _convert(getattr(value, field.name), *known[name], version)
    assert set(arguments) == set(known)
    return cls(**arguments)


def _convert(value: Any, field: dataclasses.Field[Any], hint: Any, version: int) -> Any:
    entity = inner_class(hint)
    if isinstance(value, list):
        return tuple(to_kio(item, entity, version) if entity else item for item in value)
    if entity is not None:
        return None if value is None else to_kio(value, entity, version)
    match field.metadata["kafka_type"]:
        case "uuid":
            return None if value == bytes(16) else uuid.UUID(bytes=value)
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            return None if value == -1 else start + datetime.timedelta(milliseconds=value)
    return value


@pytest.mark.parametrize(("message", "version"), KNOWN)
def test_schema_is_kafkas(message: type, version: int) -> None:
    """Fields, their order, nullability, tags and defaults are those of Kafka's schema."""
    _compare_schema(message, kio_class(message, version), version)


def _compare_schema(ours: type, theirs: type, version: int) -> None:
    known = kio_fields(theirs)
    fields = [field for field in dataclasses.fields(ours) if version in spec_of_field(field).versions]
    assert [kio_name(field, set(known)) for field in fields] == list(known)
    for field in fields:
        spec = spec_of_field(field)
        other, hint = known[kio_name(field, set(known))]
        assert spec.tag == other.metadata.get("tag"), field.name
        # In kio, an absent date or id is None as well, although the protocol knows no null for them.
        if other.metadata.get("kafka_type") not in ("uuid", "datetime_i64"):
            nullable = spec.nullable is not None and version in spec.nullable
            assert nullable == (types.NoneType in typing.get_args(hint)), field.name
            if other.default is not dataclasses.MISSING:
                assert _default_as_kio(field, inner_class(hint), version) == _plain(other.default), field.name
        nested = _nested(spec)
        if nested is not None:
            _compare_schema(nested, inner_class(hint), version)


def _nested(spec: FieldSpec) -> type | None:
    return spec.element.struct if spec.element is not None else spec.struct


def _default_as_kio(field: dataclasses.Field[Any], entity: Any, version: int) -> Any:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if isinstance(default, list):
        return tuple(default)
    return to_kio(default, entity, version) if dataclasses.is_dataclass(default) else default


def _plain(default: Any) -> Any:
    if isinstance(default, datetime.timedelta):
        return default // datetime.timedelta(milliseconds=1)
    return default


@pytest.mark.parametrize(("message", "version"), KNOWN)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_bytes_are_kafkas(message: type, version: int, data: st.DataObject) -> None:
    """What we write is what kio writes, and what kio reads is what we wrote."""
    value = data.draw(messages(message, version))
    cls = kio_class(message, version)
    entity = to_kio(value, cls, version)
    ours = encoded(value, version)
    theirs = io.BytesIO()
    entity_writer(cls)(theirs, entity)
    assert ours == theirs.getvalue()
    assert decode(message, version, ours) == value
    read, size = entity_reader(cls)(memoryview(ours), 0)
    assert (read, size) == (entity, len(ours))


def test_kio_has_the_same_list_of_apis() -> None:
    """Two independent copies of Kafka's list agree. kio has no APIs without versions."""
    known = {key: name.replace("_", "") for key, name in api_key_map.items()}
    assert known == {key: name.lower() for key, name in KAFKA_APIS.items() if key not in (4, 5, 6, 7)}


@pytest.mark.parametrize(
    "api", [api for api in KNOWN_APIS.values() if not api.key.is_own], ids=lambda api: api.key.name
)
def test_flexible_versions_are_kafkas(api: Any) -> None:
    for version in range(api.version_min, api.version_max + 1):
        if (api.key, version) not in KIO_LACKS:
            assert kio_class(api.request, version).__flexible__ == api.is_flexible(version)
            assert kio_class(api.response, version).__flexible__ == api.is_flexible(version)
