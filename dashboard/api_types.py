"""Writes the types of the HTTP API as TypeScript, from its OpenAPI document, so that `tsc` finds what no longer fits.

    python dashboard/api_types.py

The file is `src/lib/api-types.gen.ts`. It is for the compiler only: nothing of it is in the bundle, and git ignores it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TARGET = HERE / "src" / "lib" / "api-types.gen.ts"
_REFERENCE = "#/components/schemas/"
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_OMITS_DEFAULTS = {"Problem"}


def openapi() -> dict[str, Any]:
    """The document of this checkout, with what only the live streams send."""
    sys.path.insert(0, str(HERE.parent / "src"))
    import msgspec

    from drmq import __version__
    from drmq.gateway import types
    from drmq.gateway.openapi import document
    from drmq.gateway.routes import ENDPOINTS

    found = json.loads(msgspec.json.encode(document(ENDPOINTS, __version__)))
    _, streamed = msgspec.json.schema_components([types.Overview], ref_template=_REFERENCE + "{name}")
    found["components"]["schemas"] |= json.loads(msgspec.json.encode(streamed))
    return found


def typescript(document: dict[str, Any]) -> str:
    """One interface for each schema, and the answers by operation."""
    schemas = document["components"]["schemas"]
    sent = set(_sent(document, schemas))
    lines = ["// Made from the OpenAPI document by dashboard/api_types.py."]
    for name, schema in sorted(schemas.items()):
        lines += ["", f"export type {name} = {_type(schema, all_given=name not in sent | _OMITS_DEFAULTS)};"]
    lines += ["", "export interface Answers {"]
    for path, operations in sorted(document["paths"].items()):
        for method, operation in sorted(operations.items()):
            [answer] = [each for status, each in operation["responses"].items() if status.startswith("2")]
            content = list(answer.get("content", {}).values())
            kind = _type(content[0]["schema"], all_given=True) if content else "unknown"
            name = f"{method.upper()} {path.removeprefix('/api/v1')}"
            lines.append(f"  {json.dumps(name)}: {kind};")
    return "\n".join([*lines, "}", ""])


def _sent(document: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """The schemas of bodies that clients send: what has a default may be left out of these."""
    todo: list[Any] = [
        operation["requestBody"]
        for operations in document["paths"].values()
        for operation in operations.values()
        if "requestBody" in operation
    ]
    seen: set[str] = set()
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            name = str(each.get("$ref", "")).removeprefix(_REFERENCE)
            if name and name not in seen:
                seen.add(name)
                todo.append(schemas[name])
                yield name
            todo += each.values()
        elif isinstance(each, list):
            todo += each


def _type(schema: dict[str, Any], *, all_given: bool) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(dict.fromkeys(_type(each, all_given=all_given) for each in schema[several]))
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(each) for each in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": each}, all_given=all_given) for each in kind)
    if "prefixItems" in schema:
        return f"[{', '.join(_type(each, all_given=all_given) for each in schema['prefixItems'])}]"
    if kind == "array":
        item = _type(schema.get("items") or {}, all_given=all_given)
        return f"({item})[]" if "|" in item else f"{item}[]"
    if kind == "object":
        return _object(schema, all_given=all_given)
    return _PLAIN.get(str(kind), "unknown")


def _object(schema: dict[str, Any], *, all_given: bool) -> str:
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values, all_given=all_given) if isinstance(values, dict) else 'unknown'}>"
    required = schema.get("required", ())
    fields = []
    for name, each in schema["properties"].items():
        mark = "" if all_given or name in required else "?"
        shown = name if name.isidentifier() else json.dumps(name)
        fields.append(f"  {shown}{mark}: {_type(each, all_given=all_given)};")
    return "\n".join(["{", *fields, "}"])


def write() -> None:
    """Write the file, if it would be another one."""
    text = typescript(openapi())
    if not TARGET.exists() or TARGET.read_text() != text:
        TARGET.write_text(text)


if __name__ == "__main__":
    write()
