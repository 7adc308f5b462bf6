"""Tables for people and data for machines."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from drmq.server.cli.output import Column, Output, plural, size_text, table, yaml_lines

COLUMNS = [Column("name", "NAME"), Column("count", "COUNT", right=True)]
ROWS: list[dict[str, Any]] = [
    {"name": "orders", "count": 12, "hidden": 1},
    {"name": "a-long-name-of-a-topic", "count": None, "hidden": 2},
]


def test_table_lines_up() -> None:
    """Numbers to the right, nothing as a dash, no trailing blanks."""
    assert table(COLUMNS, ROWS, None).splitlines() == [
        "NAME                    COUNT",
        "orders                     12",
        "a-long-name-of-a-topic      -",
    ]


@pytest.mark.parametrize("width", [20, 25, 28, 80])
def test_table_fits_its_width(width: int) -> None:
    """The widest column gives way, with an ellipsis."""
    lines = table(COLUMNS, ROWS, width).splitlines()
    assert max(map(len, lines)) <= width
    assert ("…" in lines[2]) == (width < 29)


@pytest.mark.parametrize("form", ["json", "jsonl", "yaml"])
def test_machine_forms_have_all_keys(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A table may hide a key; machines get all of them."""
    Output(form).rows(COLUMNS, ROWS, "nothing")
    text = capsys.readouterr().out
    assert text.count("hidden") == 2
    if form == "json":
        assert json.loads(text) == ROWS
    if form == "jsonl":
        assert [json.loads(line) for line in text.splitlines()] == ROWS


def test_nothing_is_said_to_people_and_shown_to_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list is a sentence, or an empty list."""
    Output("table").rows(COLUMNS, [], "There is nothing.")
    Output("json").rows(COLUMNS, [], "There is nothing.")
    assert capsys.readouterr().out == "There is nothing.\n[]\n"


def test_each_is_said_at_once_and_listed_even_if_one_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """What was done before a failure was done, and is reported."""

    def work() -> Iterator[tuple[dict[str, Any], str]]:
        yield {"topic": "a"}, "Deleted a."
        raise ValueError("b")

    for form in ("table", "json"):
        with pytest.raises(ValueError, match="b"):
            Output(form).each(work())
    assert capsys.readouterr().out == 'Deleted a.\n[\n  {\n    "topic": "a"\n  }\n]\n'


def test_yaml() -> None:
    """Nested data, and strings that would be read as something else."""
    value = {"a": [{"b": 1, "c": [True, None]}, "x"], "d": {}, "e": "no", "f": "a: b", "g": "1", "h": []}
    assert yaml_lines(value) == [
        "a:",
        "  - b: 1",
        "    c:",
        "      - true",
        "      - null",
        "  - x",
        "d: {}",
        'e: "no"',
        'f: "a: b"',
        'g: "1"',
        "h: []",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**30, "5.0 GiB"), (2**60, "1048576.0 TiB"), (None, None)],
)
def test_size(size: int | None, text: str | None) -> None:
    """Binary units, as disks are counted here."""
    assert size_text(size) == text


def test_plural() -> None:
    """One is one."""
    assert (plural(1, "topic"), plural(0, "topic"), plural(12_000, "record")) == (
        "1 topic",
        "0 topics",
        "12,000 records",
    )
