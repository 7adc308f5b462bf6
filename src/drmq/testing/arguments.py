"""Checks of what a test passes: a mistake is reported where it is made, and not by a broker that behaves strangely."""

from __future__ import annotations

import os
from collections.abc import Mapping

from drmq.broker import BrokerOptions


def check_number(name: str, value: object, lowest: int, highest: int | None = None) -> None:
    """Raise `ValueError` unless the value is a whole number in this range."""
    allowed = f"from {lowest}" + ("" if highest is None else f" to {highest}")
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not lowest <= value <= (value if highest is None else highest):  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r}, and must be a whole number {allowed}")


def check_directory(data_dir: object) -> None:
    """Raise `TypeError` or `ValueError` unless this is a path or None. An empty one would be the present directory."""
    if data_dir is not None and not isinstance(data_dir, str | os.PathLike):
        raise TypeError(f"data_dir is {data_dir!r}, and must be a str or a path, such as a pathlib.Path")
    if data_dir == "":
        raise ValueError("data_dir is empty, and must be the path of a directory; '.' is the present one")


def check_topic(name: object, configs: object) -> None:
    """Raise `TypeError` unless a topic can have this name and these settings."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name is {name!r}, and must be a str")
    if configs is not None and not isinstance(configs, Mapping):
        raise TypeError(f"configs is {configs!r}, and must be a dictionary, such as {{'retention.ms': 1000}}")


def check_options(options: object) -> None:
    """Raise `TypeError` for what is often tried instead: a dictionary of settings."""
    if options is not None and not isinstance(options, BrokerOptions):
        raise TypeError(
            f"options is a {type(options).__name__}, and must be a drmq.broker.BrokerOptions, such as "
            "BrokerOptions(num_partitions=3)"
        )
