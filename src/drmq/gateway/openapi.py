"""The OpenAPI 3.1 document of the HTTP API, made from the endpoints and their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from drmq.gateway.endpoint import PREFIX, Endpoint
from drmq.gateway.problems import MEDIA_TYPE
from drmq.gateway.types import Problem

_REFERENCE = "#/components/schemas/{name}"


def document(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """The document as a value that can be encoded as JSON."""
    endpoints = list(endpoints)
    kinds: list[Any] = [Problem]
    for each in endpoints:
        kinds += [kind for kind in (each.params, each.body, each.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    schema_of = dict(zip(map(str, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _operation(each, schema_of, components)
    parameters = {each.params.__name__ for each in endpoints if each.params is not None}
    return {
        "openapi": "3.1.0",
        "info": {"title": "DRMQ", "version": version, "description": "The HTTP API of every DRMQ gateway."},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {name: each for name, each in components.items() if name not in parameters}},
    }


def _operation(each: Endpoint, schema_of: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": each.summary,
        "operationId": each.handler.__name__,
        "responses": {
            str(each.status): _content("The answer.", "application/json", schema_of[str(each.answer)]),
            "default": _content("A problem.", MEDIA_TYPE, schema_of[str(Problem)]),
        },
    }
    if each.params is not None:
        operation["parameters"] = list(_parameters(each, components[each.params.__name__]))
    for name, meaning in each.headers:
        schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[\x21-\x7e]+$"}
        header = {"name": name, "in": "header", "required": False, "description": meaning, "schema": schema}
        operation.setdefault("parameters", []).append(header)
    if each.body is not None:
        schema = schema_of[str(each.body)]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _content(text: str, media_type: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {media_type: {"schema": schema}}}


def _parameters(each: Endpoint, schema: dict[str, Any]) -> Iterable[dict[str, Any]]:
    required = set(schema.get("required", ()))
    for name, kind in schema["properties"].items():
        where = "path" if name in each.path_names else "query"
        yield {"name": name, "in": where, "required": where == "path" or name in required, "schema": kind}
