"""A setting is a field of an options class: name, help and bounds all come from there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from drmq.broker.options import BrokerOptions
from drmq.model.options import Range
from drmq.server.config import TABLES, all_settings
from drmq.server.settings import (
    DURATION_UNITS,
    SIZE_UNITS,
    BadValue,
    Setting,
    field_docs,
    parse_number,
    settings_of,
)


@dataclass(frozen=True)
class Sample:
    count: Annotated[int, Range(1, 10)] = 3
    """How many.

    Over two paragraphs."""
    pause_ms: Annotated[int, Range(0)] = 5
    """A pause."""
    buffer_bytes_max: Annotated[int, Range(1)] = 64
    on: bool = True
    """A switch."""
    level: Literal["low", "high"] = "low"
    name: str | None = None
    host: str = "here"
    place: Path = Path("x")
    door: Annotated[int, Range(0, 9)] | None = None
    parts: tuple[str, ...] = ("a", "b")


SAMPLE = {setting.name: setting for setting in settings_of(Sample, "sample")}


def test_kind_follows_from_type_and_name() -> None:
    """The kind says how text is parsed and what the help calls it."""
    kinds = {name: setting.kind for name, setting in SAMPLE.items()}
    assert kinds == {
        "count": "int",
        "pause_ms": "duration",
        "buffer_bytes_max": "size",
        "on": "bool",
        "level": "choice",
        "name": "text",
        "host": "text",
        "place": "path",
        "door": "int",
        "parts": "list",
    }


def test_help_is_the_docstring_below_the_field() -> None:
    """Several lines become one; a field without a docstring has an empty help."""
    assert field_docs(Sample)["count"] == "How many. Over two paragraphs."
    assert SAMPLE["on"].help == "A switch."
    assert SAMPLE["level"].help == ""


def test_flag_and_variable_come_from_the_name() -> None:
    """One name, three spellings."""
    assert SAMPLE["buffer_bytes_max"].flag == "--buffer-bytes-max"
    assert SAMPLE["buffer_bytes_max"].variable == "DRMQ_BUFFER_BYTES_MAX"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "7", 7),
        ("count", " 7 ", 7),
        ("pause_ms", "250", 250),
        ("pause_ms", "1.5s", 1500),
        ("pause_ms", "7d", 604_800_000),
        ("buffer_bytes_max", "64KiB", 65_536),
        ("buffer_bytes_max", "2 MB", 2_000_000),
        ("buffer_bytes_max", "1_000", 1000),
        ("on", "Yes", True),
        ("on", "0", False),
        ("level", "HIGH", "high"),
        ("name", "", None),
        ("name", "x", "x"),
        ("place", "/a/b", Path("/a/b")),
        ("door", "7", 7),
        ("door", "", None),
        ("parts", "c, d ,,e", ("c", "d", "e")),
        ("parts", "", ()),
    ],
)
def test_text_is_parsed(name: str, text: str, value: object) -> None:
    """What a person writes becomes the value of its type."""
    assert SAMPLE[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("count", "0"),
        ("count", "11"),
        ("count", "seven"),
        ("count", "1.5"),
        ("count", "3s"),
        ("count", True),
        ("count", 2.0),
        ("pause_ms", "-1"),
        ("pause_ms", "3 parsecs"),
        ("buffer_bytes_max", "1TB"),
        ("on", "maybe"),
        ("on", 1),
        ("level", "middle"),
        ("host", ""),
        ("host", 7),
        ("door", "10"),
        ("parts", [1]),
        ("parts", {"a": "b"}),
    ],
)
def test_wrong_values_are_refused(name: str, raw: object) -> None:
    """Each wrong value raises, and every setting can say what is allowed instead."""
    with pytest.raises(BadValue):
        SAMPLE[name].parse(raw)
    assert SAMPLE[name].allowed


def test_list_may_be_one_of_the_file() -> None:
    """In a file a list can be written as one; its default in the help is one that a flag takes."""
    assert SAMPLE["parts"].parse(["c", " d "]) == ("c", "d")
    assert SAMPLE["parts"].default_text == "a,b"


def test_number_keeps_precision() -> None:
    """Large whole numbers do not pass through floating point."""
    assert parse_number("9007199254740993", SIZE_UNITS) == 9007199254740993
    assert parse_number("9007199254740993ms", DURATION_UNITS) == 9007199254740993


def test_every_option_is_a_setting_with_help() -> None:
    """Each field of each options class can be set, and its docstring explains it."""
    settings = all_settings()
    for table, cls in TABLES.items():
        for setting in settings_of(cls, table):
            assert settings[setting.name] == setting
            assert setting.help.endswith("."), setting.name
            assert setting.parse(setting.default_text or ("7" if setting.allowed_range else "x")) is not None
    assert set(BrokerOptions.__dataclass_fields__) <= set(settings)


def test_default_is_written_as_it_would_be_read() -> None:
    """The default in the help can be copied into a file."""
    for setting in all_settings().values():
        if setting.default is not None:
            assert setting.parse(setting.default_text) == setting.default


def test_choice_lists_its_choices() -> None:
    """A choice needs no other explanation."""
    setting = SAMPLE["level"]
    assert isinstance(setting, Setting)
    assert setting.metavar == "low|high"
    assert setting.allowed == "low or high"
