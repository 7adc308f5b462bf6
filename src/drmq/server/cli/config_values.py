"""Settings of topics and groups as users type them: `retention.ms=7d`. Brokers accept plain numbers only."""

from __future__ import annotations

import click

from drmq.server.cli.options import key_values


def plain_values(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`NAME=VALUE` pairs as a broker accepts them: plain numbers, whatever unit was given."""
    from drmq.server.settings import DURATION_UNITS, SIZE_UNITS, BadValue, parse_number

    found = key_values(pairs, option)
    for name, value in found.items():
        kinds = {"ms": (DURATION_UNITS, "500ms, 30s, 7d"), "bytes": (SIZE_UNITS, "64KiB, 1MiB, 2GB")}
        units, examples = kinds.get(name.rpartition(".")[2], ({}, ""))
        if not units:
            continue
        try:
            found[name] = str(parse_number(value.strip(), units))
        except BadValue as error:
            raise click.BadParameter(
                f"{name}={value}: {error}. Allowed is a whole number, or one with a unit such as {examples}.",
                param_hint=option,
            ) from None
    return found
