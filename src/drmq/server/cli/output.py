"""What commands print: tables for people, and the same facts as JSON, JSON lines or YAML for programs.

A command passes plain dictionaries. Their keys are the interface for programs and do not change; a table shows some of
them under headings. On a terminal, a table is truncated to the terminal's width. In a pipe nothing is truncated and
nothing is coloured, and columns still line up.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from drmq.server.cli.hints import with_bootstrap

FORMATS = ("table", "json", "jsonl", "yaml")

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table: the key of its values, its heading, and whether it holds numbers."""

    key: str
    heading: str
    right: bool = False


class Output:
    """Prints in the format chosen with `-o`."""

    def __init__(self, form: str) -> None:
        self.form = form

    @property
    def is_human(self) -> bool:
        return self.form == "table"

    def rows(self, columns: Sequence[Column], rows: Iterable[Row], empty: str) -> None:
        """Print a list. `empty` is printed instead of an empty table."""
        found = [dict(row) for row in rows]
        if not self.is_human:
            self.data(found)
        elif found:
            print(table(columns, found, _width()))
        else:
            print(with_bootstrap(empty))

    def one(self, facts: Row, text: str) -> None:
        """Print one object. `text` is its form for people."""
        if self.is_human:
            print(text)
        else:
            self.data(dict(facts))

    def each(self, done: Iterable[tuple[Row, str]]) -> None:
        """Print things that are done one after the other, each with its form for people.

        People see each one at once; programs get one list, which also contains what was done before a failure.
        """
        found: list[Row] = []
        try:
            for facts, text in done:
                found.append(dict(facts))
                if self.is_human:
                    print(text)
        finally:
            if not self.is_human:
                self.data(found)

    def data(self, value: Any) -> None:
        """Print a list or an object in the format for programs."""
        if self.form == "yaml":
            print("\n".join(yaml_lines(value)))
        elif self.form == "jsonl":
            for item in value if isinstance(value, list) else [value]:
                print(json.dumps(item, ensure_ascii=False))
        else:
            print(json.dumps(value, ensure_ascii=False, indent=2))


def _width() -> int | None:
    """The width of the terminal; None if standard output is not a terminal and nothing should be truncated."""
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def emphasised(text: str) -> str:
    """The text in bold on a terminal with colour."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return f"\x1b[1m{text}\x1b[0m"
    return text


def table(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> str:
    """Rows under headings. The widest columns are truncated, with an ellipsis, until the table fits."""
    cells = [[_cell(row.get(column.key)) for column in columns] for row in rows]
    widths = [max([len(column.heading), *(len(line[i]) for line in cells)]) for i, column in enumerate(columns)]
    while width is not None and sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > 3:
        widths[widths.index(max(widths))] -= 1
    lines = [emphasised(_line([column.heading for column in columns], columns, widths))]
    lines += [_line(line, columns, widths) for line in cells]
    return "\n".join(lines)


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = []
    for cell, column, size in zip(cells, columns, widths, strict=True):
        shown = cell if len(cell) <= size else cell[: size - 1] + "…"
        parts.append(shown.rjust(size) if column.right else shown.ljust(size))
    return "  ".join(parts).rstrip()


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def yaml_lines(value: Any, indent: str = "") -> list[str]:
    """Plain data as YAML. Strings that could be misread are quoted as in JSON, which YAML understands."""
    if isinstance(value, dict) and value:
        lines = []
        for key, item in value.items():
            lines += _yaml_item(f"{indent}{_yaml_scalar(str(key))}:", item, indent + "  ")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for item in value:
            inner = yaml_lines(item, indent + "  ")
            lines.append(f"{indent}- {inner[0].lstrip()}")
            lines += inner[1:]
        return lines
    return [indent + _yaml_scalar(value)]


def _yaml_item(head: str, item: Any, indent: str) -> list[str]:
    if isinstance(item, dict | list) and item:
        return [head, *yaml_lines(item, indent)]
    return [f"{head} {_yaml_scalar(item)}"]


_YAML_WORDS = frozenset({"", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"})


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, str):
        safe = value.replace("_", "").replace("-", "").replace(".", "").replace("/", "")
        if safe.isalnum() and value[0].isalpha() and value.lower() not in _YAML_WORDS:
            return value
    return json.dumps(value, ensure_ascii=False)


def size_text(size_bytes: int | None) -> str | None:
    """A number of bytes with a unit."""
    if size_bytes is None:
        return None
    if size_bytes < 1024:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    """`1 topic`, `2 topics`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration_text(duration_ms: int | None) -> str | None:
    """A duration in its largest unit, and the next one if that says more: `850 ms`, `45 s`, `3 min 20 s`, `2 h`."""
    if duration_ms is None:
        return None
    if duration_ms < 1000:
        return f"{max(duration_ms, 0)} ms"
    left_s = duration_ms // 1000
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left_s = divmod(left_s, size)
        if count:
            parts.append(f"{count} {unit}")
        if parts and (unit == "s" or len(parts) == 2 or not count):
            break
    return " ".join(parts)
