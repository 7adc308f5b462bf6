"""The compiler from a message schema to functions: it generates the source of readers and writers and compiles it.

A compiled reader is `(buffer, position, end) -> (value, position after it)`, a writer is `(value, out) -> None`. Each
structure of each version becomes one function, and a structure that contains another calls its function. The generated
source is straight-line code: whatever depends only on the schema and the version is decided here, and only lengths,
counts, nulls and tags are decided for each message. To see the source of a reader, print `_Source.lines` before
`build`.

Only our own schemas are compiled, never anything that a peer has sent.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from drmq.wire.codec import (
    EncodedArray,
    Pieces,
    Reader,
    Writer,
    check_count,
    field_too_long,
    put_pieces,
    read_uvarint,
    skip_tags,
    unexpected_null,
    write_uvarint,
)
from drmq.wire.fields import SPEC_KEY, FieldSpec, spec_of

_FIXED = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
          "bool": "?", "uuid": "16s"}  # fmt: skip
_FIXED_SIZE = {kind: struct.calcsize(">" + code) for kind, code in _FIXED.items()}
_SMALL_COUNT = 15
_SHORT_ARRAY = 8
"""Up to this many elements, an array of numbers is packed and unpacked with a precompiled `Struct`."""


class _Source:
    """Lines of a function under construction, and the objects that they refer to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "check_count": check_count,
            "field_too_long": field_too_long,
            "skip_tags": skip_tags,
            "unexpected_null": unexpected_null,
            "uvarint": read_uvarint,
            "put_uvarint": write_uvarint,
            "pack": struct.pack,
            "unpack_from": struct.unpack_from,
        }

    def add(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def bind(self, value: Any) -> str:
        """A fresh name for `value` inside the function."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def build(self, header: str) -> Any:
        exec("\n".join([header, *self.lines]), self.names)
        return self.names["compiled"]


_Field = tuple[str, FieldSpec, Any]
"""A field's name, its spec, and its default or the callable that makes its default."""


def _fields(cls: type) -> list[_Field]:
    found = []
    for field in dataclasses.fields(cls):
        default = field.default if field.default is not dataclasses.MISSING else field.default_factory
        found.append((field.name, field.metadata[SPEC_KEY], default))
    return found


def _on_the_wire(cls: type, version: int) -> tuple[list[_Field], list[_Field]]:
    """The plain and the tagged fields that this version has, each in the order of the wire."""
    present = [field for field in _fields(cls) if version in field[1].versions]
    plain = [field for field in present if field[1].tag is None]
    tagged = sorted((field for field in present if field[1].tag is not None), key=lambda field: field[1].tag or 0)
    return plain, tagged


def _is_nullable(spec: FieldSpec, version: int) -> bool:
    return spec.nullable is not None and version in spec.nullable


def _size_min(spec: FieldSpec, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of this kind takes, to check counts against."""
    if spec.kind in _FIXED_SIZE:
        return _FIXED_SIZE[spec.kind]
    if spec.kind == "struct" and not _is_nullable(spec, version):
        assert spec.struct is not None, spec
        plain, _ = _on_the_wire(spec.struct, version)
        size = sum(_size_min(inner, version, flexible) for _, inner, _ in plain) + flexible
        # A structure of zero bytes would allow a count of any size.
        assert size > 0, (spec, version)
        return size
    if flexible or spec.kind == "struct":
        return 1
    return 2 if spec.kind == "string" else 4


def message_reader(cls: type, version: int) -> Reader:
    """The reader of this version of a message."""
    return _struct_reader(cls, version, _is_flexible(cls, version))


def message_writer(cls: type, version: int) -> Writer:
    """The writer of this version of a message."""
    return _struct_writer(cls, version, _is_flexible(cls, version))


def part_writer(cls: type, message: type, version: int) -> Writer:
    """The writer of a structure as it is in this version of a message."""
    return _struct_writer(cls, version, _is_flexible(message, version))


def _is_flexible(cls: type, version: int) -> bool:
    spec = spec_of(cls)
    # Versions are checked against the API table before a body is read, so a wrong version here is a bug.
    assert spec.first_version <= version <= spec.last_version, (cls, version)
    return version >= spec.flexible_from


# ---- readers -------------------------------------------------------------------------------------


def _struct_reader(cls: type, version: int, flexible: bool) -> Reader:
    """A function that reads one `cls` as this version writes it."""
    source = _Source()
    construct = source.bind(cls)
    plain, tagged = _on_the_wire(cls, version)
    run: list[_Field] = []
    for field in plain:
        if field[1].kind in _FIXED:
            run.append(field)
            continue
        _read_run(source, run)
        run = []
        name, spec, _ = field
        _read_value(source, 1, f"v_{name}", name, spec, version, flexible)
    _read_run(source, run)
    if flexible:
        _read_tags(source, tagged, version)
    # Positional arguments for all fields, in the order of the class: keywords cost twice as much.
    present = {name for name, _, _ in plain + tagged}
    arguments = [f"v_{name}" if name in present else _default(source, default) for name, _, default in _fields(cls)]
    source.add(1, f"return {construct}({', '.join(arguments)}), position")
    return source.build("def compiled(buffer, position, end):")  # type: ignore[no-any-return]


def _default(source: _Source, default: Any) -> str:
    """An expression for a field's default, fresh for each message if it can be changed."""
    return f"{source.bind(default)}()" if callable(default) else source.bind(default)


def _read_run(source: _Source, run: list[_Field]) -> None:
    """Consecutive fixed-size fields in one `struct` call, which raises if the buffer ends before them."""
    if not run:
        return
    layout = struct.Struct(">" + "".join(_FIXED[spec.kind] for _, spec, _ in run))
    targets = ", ".join(f"v_{name}" for name, _, _ in run)
    source.add(1, f"{targets}, = {source.bind(layout.unpack_from)}(buffer, position)")
    source.add(1, f"position += {layout.size}")


def _read_value(
    source: _Source, indent: int, target: str, name: str, spec: FieldSpec, version: int, flexible: bool
) -> None:
    """One value of any kind, with its length, count or null mark."""
    if spec.kind in _FIXED:
        layout = struct.Struct(">" + _FIXED[spec.kind])
        source.add(indent, f"{target}, = {source.bind(layout.unpack_from)}(buffer, position)")
        source.add(indent, f"position += {layout.size}")
        return
    nullable = _is_nullable(spec, version)
    if spec.kind == "struct" and not nullable:
        _read_struct(source, indent, target, spec, version, flexible)
        return
    _read_length(source, indent, spec, flexible)
    if nullable:
        # Only -1 is null. Any lower value is a malformed message.
        source.add(indent, f"if n == -1: {target} = None")
        source.add(indent, f"elif n < 0: raise unexpected_null({name!r})")
    else:
        source.add(indent, f"if n < 0: raise unexpected_null({name!r})")
    source.add(indent, "else:")
    inner = indent + 1
    if spec.kind == "struct":
        _read_struct(source, inner, target, spec, version, flexible)
    elif spec.kind == "array":
        _read_elements(source, inner, target, spec, version, flexible)
    else:
        # A slice alone would silently return fewer bytes than the field should have.
        source.add(inner, "stop = position + n")
        source.add(inner, "if stop > end: raise field_too_long(n, position, end)")
        if spec.kind == "string":
            source.add(inner, f"{target} = str(buffer[position:stop], 'utf-8')")
        elif spec.kind == "payload":
            source.add(inner, f"{target} = buffer[position:stop]")
        else:
            source.add(inner, f"{target} = bytes(buffer[position:stop])")
        source.add(inner, "position = stop")


def _read_length(source: _Source, indent: int, spec: FieldSpec, flexible: bool) -> None:
    """Set `n` to the length or count that stands before a value, -1 for null."""
    if spec.kind == "struct":
        # A nullable structure has a one-byte mark instead: negative is null, 1 is present (KIP-893).
        source.add(indent, "n = -1 if buffer[position] > 127 else 1")
        source.add(indent, "position += 1")
    elif flexible:
        source.add(indent, "n = buffer[position]")
        source.add(indent, "if n < 128: position += 1")
        source.add(indent, "else: n, position = uvarint(buffer, position)")
        source.add(indent, "n -= 1")
    else:
        layout = struct.Struct(">h" if spec.kind == "string" else ">i")
        source.add(indent, f"n, = {source.bind(layout.unpack_from)}(buffer, position)")
        source.add(indent, f"position += {layout.size}")


def _read_struct(source: _Source, indent: int, target: str, spec: FieldSpec, version: int, flexible: bool) -> None:
    assert spec.struct is not None, spec
    reader = source.bind(_struct_reader(spec.struct, version, flexible))
    source.add(indent, f"{target}, position = {reader}(buffer, position, end)")


def _read_elements(source: _Source, indent: int, target: str, spec: FieldSpec, version: int, flexible: bool) -> None:
    assert spec.element is not None, spec
    size = _size_min(spec.element, version, flexible)
    # Below sixteen a wrong count is harmless and is detected soon enough, so the call is saved.
    source.add(indent, f"if n > {_SMALL_COUNT}: check_count(n, {size}, position, end)")
    code = _FIXED.get(spec.element.kind)
    if code is not None and len(code) == 1:
        layouts = source.bind([struct.Struct(f">{count}{code}").unpack_from for count in range(_SHORT_ARRAY)])
        source.add(indent, f"if n < {_SHORT_ARRAY}: {target} = [*{layouts}[n](buffer, position)]")
        source.add(indent, f"else: {target} = [*unpack_from(f'>{{n}}{code}', buffer, position)]")
        source.add(indent, f"position += n * {size}")
        return
    source.add(indent, f"{target} = []")
    source.add(indent, "for _ in range(n):")
    _read_value(source, indent + 1, "item", "an element", spec.element, version, flexible)
    source.add(indent + 1, f"{target}.append(item)")


def _read_tags(source: _Source, tagged: list[_Field], version: int) -> None:
    """The tagged fields that close a flexible structure; unknown ones are skipped."""
    for name, _, default in tagged:
        source.add(1, f"v_{name} = {_default(source, default)}")
    source.add(1, "if not buffer[position]: position += 1")
    if not tagged:
        source.add(1, "else: position = skip_tags(buffer, position, end)")
        return
    source.add(1, "else:")
    source.add(2, "tags, position = uvarint(buffer, position)")
    # Tags must ascend strictly. A field that came twice would be read twice, and the last value would win.
    source.add(2, "last = -1")
    source.add(2, "for _ in range(tags):")
    source.add(3, "tag, position = uvarint(buffer, position)")
    source.add(3, "size, position = uvarint(buffer, position)")
    source.add(3, "after = position + size")
    source.add(3, "if after > end: raise field_too_long(size, position, end)")
    source.add(3, "if tag <= last: raise IndexError(f'tag {tag} after tag {last}')")
    source.add(3, "last = tag")
    for number, (name, spec, _) in enumerate(tagged):
        source.add(3, f"{'el' if number else ''}if tag == {spec.tag}:")
        _read_value(source, 4, f"v_{name}", name, spec, version, True)
        source.add(4, "if position != after: raise IndexError(f'tag {tag} is not of the size it claims')")
    source.add(3, "position = after")


# ---- writers -------------------------------------------------------------------------------------


def _struct_writer(cls: type, version: int, flexible: bool) -> Writer:
    """A function that appends one `cls` as this version writes it."""
    source = _Source()
    plain, tagged = _on_the_wire(cls, version)
    run: list[_Field] = []
    for field in plain:
        if field[1].kind in _FIXED:
            run.append(field)
            continue
        _write_run(source, run)
        run = []
        name, spec, _ = field
        source.add(1, f"v = value.{name}")
        _write_value(source, 1, "v", name, spec, version, flexible)
    _write_run(source, run)
    if flexible:
        _write_tags(source, tagged, version)
    source.add(1, "return")
    return source.build("def compiled(value, out):")  # type: ignore[no-any-return]


def _write_run(source: _Source, run: list[_Field]) -> None:
    if run:
        layout = struct.Struct(">" + "".join(_FIXED[spec.kind] for _, spec, _ in run))
        source.add(1, f"out += {source.bind(layout.pack)}({', '.join(f'value.{name}' for name, _, _ in run)})")


def _write_value(
    source: _Source, indent: int, place: str, name: str, spec: FieldSpec, version: int, flexible: bool
) -> None:
    if spec.kind in _FIXED:
        layout = struct.Struct(">" + _FIXED[spec.kind])
        source.add(indent, f"out += {source.bind(layout.pack)}({place})")
        return
    nullable = _is_nullable(spec, version)
    if spec.kind == "struct" and not nullable:
        _write_struct(source, indent, place, spec, version, flexible)
        return
    source.add(indent, f"if {place} is None:")
    if nullable:
        source.add(indent + 1, f"out += {_null_mark(spec, flexible)!r}")
    else:
        source.add(indent + 1, f"raise ValueError({f'{name} cannot be null in version {version}'!r})")
    source.add(indent, "else:")
    inner = indent + 1
    if spec.kind == "struct":
        source.add(inner, "out.append(1)")
        _write_struct(source, inner, place, spec, version, flexible)
    elif spec.kind == "array":
        _write_length(source, inner, place, spec, flexible)
        _write_elements(source, inner, place, spec, version, flexible)
    else:
        source.add(inner, f"data = {place}.encode()" if spec.kind == "string" else f"data = {place}")
        _write_length(source, inner, "data", spec, flexible)
        if spec.kind == "payload":
            source.add(inner, f"if type(data) is {source.bind(Pieces)}: {source.bind(put_pieces)}(data, out)")
            source.add(inner, "else: out += data")
        else:
            source.add(inner, "out += data")


def _write_struct(source: _Source, indent: int, place: str, spec: FieldSpec, version: int, flexible: bool) -> None:
    assert spec.struct is not None, spec
    source.add(indent, f"{source.bind(_struct_writer(spec.struct, version, flexible))}({place}, out)")


def _write_elements(source: _Source, indent: int, place: str, spec: FieldSpec, version: int, flexible: bool) -> None:
    assert spec.element is not None, spec
    code = _FIXED.get(spec.element.kind)
    if code is not None and len(code) == 1:
        layouts = source.bind([struct.Struct(f">{count}{code}").pack for count in range(_SHORT_ARRAY)])
        source.add(indent, f"n = len({place})")
        source.add(indent, f"if n < {_SHORT_ARRAY}: out += {layouts}[n](*{place})")
        source.add(indent, f"else: out += pack(f'>{{n}}{code}', *{place})")
        return
    if spec.element.kind == "struct":
        source.add(indent, f"if type({place}) is {source.bind(EncodedArray)}: out += {place}.data")
        source.add(indent, "else:")
        indent += 1
    source.add(indent, f"for item in {place}:")
    _write_value(source, indent + 1, "item", "an element", spec.element, version, flexible)


def _null_mark(spec: FieldSpec, flexible: bool) -> bytes:
    if spec.kind == "struct":
        return b"\xff"
    if flexible:
        return b"\x00"
    return b"\xff\xff" if spec.kind == "string" else b"\xff\xff\xff\xff"


def _write_length(source: _Source, indent: int, place: str, spec: FieldSpec, flexible: bool) -> None:
    if flexible:
        source.add(indent, f"n = len({place}) + 1")
        source.add(indent, "if n < 128: out.append(n)")
        source.add(indent, "else: put_uvarint(n, out)")
    else:
        layout = struct.Struct(">h" if spec.kind == "string" else ">i")
        source.add(indent, f"out += {source.bind(layout.pack)}(len({place}))")


def _write_tags(source: _Source, tagged: list[_Field], version: int) -> None:
    """Tagged fields in tag order, each only when it differs from its default."""
    if not tagged:
        source.add(1, "out.append(0)")
        return
    for number, (name, _, default) in enumerate(tagged):
        source.add(1, f"t{number} = value.{name} != {source.bind(default() if callable(default) else default)}")
    source.add(1, f"put_uvarint({' + '.join(f't{number}' for number in range(len(tagged)))}, out)")
    source.add(1, "whole = out")
    for number, (name, spec, _) in enumerate(tagged):
        source.add(1, f"if t{number}:")
        source.add(2, "out = bytearray()")
        source.add(2, f"v = value.{name}")
        _write_value(source, 2, "v", name, spec, version, True)
        source.add(2, f"put_uvarint({spec.tag}, whole)")
        source.add(2, "put_uvarint(len(out), whole)")
        source.add(2, "whole += out")
