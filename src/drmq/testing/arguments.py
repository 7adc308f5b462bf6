"""Checks of what a test passes: a mistake is reported where it is made, and not by a broker that behaves strangely."""

from __future__ import annotations

from drmq.broker import BrokerOptions


def check_number(name: str, value: object, lowest: int, highest: int | None = None) -> None:
    """Raise `ValueError` unless the value is a whole number in this range."""
    allowed = f"from {lowest}" + ("" if highest is None else f" to {highest}")
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not lowest <= value <= (value if highest is None else highest):  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r}, and must be a whole number {allowed}")


def check_options(options: object) -> None:
    """Raise `TypeError` for what is often tried instead: a dictionary of settings."""
    if options is not None and not isinstance(options, BrokerOptions):
        raise TypeError(
            f"options is a {type(options).__name__}, and must be a drmq.broker.BrokerOptions, such as "
            "BrokerOptions(num_partitions=3)"
        )
