"""A setting: one field of an options class, as users see it.

The dataclasses are the only definition. The field gives the name, the flag, the variable and the key in the file; its
type gives the allowed values; its docstring gives the help text. A new option is therefore one line with a docstring,
and becomes a flag, a variable, a key and a line in the manual.

Sizes and durations may have a unit (`64MiB`, `7d`) wherever text is read, because people miscount the zeros of
604800000.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from drmq.model.options import Range, option_types

SIZE_UNITS = {"b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
DURATION_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class BadValue(ValueError):
    """A text or TOML value that is not valid for its setting. The message says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `kind` is `int`, `size`, `duration`, `bool`, `choice`, `path`, `list` or `text`."""

    name: str
    table: str
    kind: str
    default: Any
    help: str
    allowed_range: Range | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "DRMQ_" + self.name.upper()

    @property
    def metavar(self) -> str:
        if self.kind == "choice":
            return "|".join(self.choices)
        return {"int": "N", "size": "BYTES", "duration": "MS", "bool": "BOOL", "path": "DIR", "list": "LIST"}.get(
            self.kind, "ADDRESS" if "host" in self.name or self.name == "advertise" else "TEXT"
        )

    @property
    def allowed(self) -> str:
        """A description of the allowed values."""
        if self.kind == "choice":
            return " or ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.allowed_range is not None:
            before, after = {
                "size": ("bytes, ", "; units such as 64KiB, 1MiB, 2GB may be given"),
                "duration": ("milliseconds, ", "; units such as 500ms, 30s, 7d may be given"),
            }.get(self.kind, ("a whole number, ", ""))
            return f"{before}{self.allowed_range}{after}"
        return {"path": "a directory", "list": "a list, separated by commas"}.get(self.kind, "a name or address")

    @property
    def default_text(self) -> str:
        """The default as it is written in a file or on a command line."""
        return self.text_of(self.default)

    def text_of(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def parse(self, raw: Any) -> Any:
        """The value of a text or of a TOML value. Raises `BadValue`."""
        if isinstance(raw, str):
            return self._parse_text(raw.strip())
        if self.kind == "bool":
            if isinstance(raw, bool):
                return raw
        elif self.allowed_range is not None and isinstance(raw, int) and not isinstance(raw, bool):
            return self._in_range(raw)
        elif self.kind == "list" and isinstance(raw, list) and all(isinstance(part, str) for part in raw):
            return tuple(part.strip() for part in raw)
        raise BadValue(f"a value of type {type(raw).__name__} is not allowed")

    def _parse_text(self, text: str) -> Any:
        if self.kind != "path" and any("\ud800" <= character <= "\udfff" for character in text):
            raise BadValue("this is not UTF-8 text")
        if self.kind == "bool":
            lowered = text.lower()
            if lowered in _TRUE or lowered in _FALSE:
                return lowered in _TRUE
            raise BadValue("this is neither true nor false")
        if self.kind == "choice":
            if text.lower() in self.choices:
                return text.lower()
            raise BadValue("this is not one of the choices")
        if self.kind == "list":
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if self.allowed_range is not None and not (self.optional and not text):
            units = {"size": SIZE_UNITS, "duration": DURATION_UNITS}.get(self.kind, {})
            return self._in_range(parse_number(text, units))
        if not text:
            if self.optional:
                return None
            raise BadValue("this is empty")
        return Path(text).expanduser() if self.kind == "path" else text

    def _in_range(self, value: int) -> int:
        assert self.allowed_range is not None, self
        if value not in self.allowed_range:
            if value < self.allowed_range.minimum:
                raise BadValue("this is too small")
            # The range says "1 or more" where the largest value is only that of the field on the wire.
            raise BadValue(f"this is too large, {self.allowed_range.maximum} is the largest value")
        return value


def parse_number(text: str, units: dict[str, int]) -> int:
    """A whole number, with `_` between digits and a unit if wanted. Raises `BadValue`."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().lower()
    if unit and unit not in units:
        raise BadValue(f"{unit!r} is not an allowed unit" if units else "this is not a whole number")
    try:
        # A fraction makes sense only with a unit: half a gigabyte is a number of bytes, half a partition is not.
        number = float(digits) if unit and "." in digits else int(digits)
        return int(number * units[unit]) if unit else int(number)
    except (ValueError, OverflowError):
        raise BadValue("this is not a whole number") from None


def settings_of(cls: type, table: str) -> list[Setting]:
    """The settings defined by the fields of a dataclass, without fields that have no plain default."""
    helps = field_docs(cls)
    hints = option_types(cls)
    found = []
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING:
            continue
        found.append(_setting(field.name, table, hints[field.name], field.default, helps.get(field.name, "")))
    return found


def _setting(name: str, table: str, hint: Any, default: Any, help_text: str) -> Setting:
    optional = get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)
    if optional:
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    allowed = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Range)), None)
    if allowed is not None:
        if name.endswith("_ms"):
            return Setting(name, table, "duration", default, help_text, allowed, optional=optional)
        kind = "size" if "bytes" in name else "int"
        return Setting(name, table, kind, default, help_text, allowed, optional=optional)
    if get_origin(hint) is Literal:
        return Setting(name, table, "choice", default, help_text, choices=get_args(hint))
    kind = "list" if get_origin(hint) is tuple else {bool: "bool", Path: "path"}.get(hint, "text")
    return Setting(name, table, kind, default, help_text, optional=optional)


def field_docs(cls: type) -> dict[str, str]:
    """The docstring below each field of a class. Python discards these, so they are read from the source.

    Without source code (an archive of bytecode) only the help texts are missing.
    """
    try:
        tree = ast.parse(inspect.getsource(cls))
    except (OSError, SyntaxError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    docs = {}
    for statement, following in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            docs[statement.target.id] = " ".join(following.value.value.split())
    return docs
