"""Addresses as users write them: `HOST`, `HOST:PORT`, `[::1]:PORT`, and lists of these."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

DEFAULT_PORT = 9092


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def split_address(text: str) -> tuple[str, int | None]:
    """Host and port of `HOST`, `HOST:PORT`, `::1`, `[::1]` or `[::1]:PORT`. Raises `ValueError`."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
    if bracketed:
        host, port = bracketed.group(1), bracketed.group(2)
    elif text.count(":") > 1:
        host, port = text, None
    else:
        host, separator, after = text.partition(":")
        port = after if separator else None
    if not host or any(character.isspace() for character in host):
        raise ValueError(f"{text!r} has no host; allowed is HOST or HOST:PORT")
    check_host(host)
    if port is None:
        return host, None
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"{text!r} has no valid port; allowed is 1 to 65535")
    return host, int(port)


def check_host(host: str) -> None:
    """Raise `ValueError` for what cannot be the name or address of a host, so that no resolver has to be asked."""
    labels = host.removesuffix(".").split(".")
    if not host.isascii():
        try:
            host.encode("idna")
        except UnicodeError:
            labels = []
    if "/" in host or not labels or not all(1 <= len(label) <= 63 for label in labels):
        raise ValueError(
            f"{host[:100]!r} is not a host: a name has parts of 1 to 63 characters with single dots between them; "
            "give HOST:PORT, not a URL"
        )


def parse_bootstrap(text: str) -> list[Address]:
    """The servers of a list such as `one:9092,two`; the port is 9092 where none is given. Raises `ValueError`."""
    found = []
    for part in text.split(","):
        if part.strip():
            host, port = split_address(part.strip())
            found.append(Address(host, DEFAULT_PORT if port is None else port))
    if not found:
        raise ValueError("no server is named; give HOST:PORT, or several with commas between them")
    return found


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach an address of this host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, which may lead anywhere
