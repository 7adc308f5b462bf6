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
    if port is None:
        return host, None
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"{text!r} has no valid port; allowed is 1 to 65535")
    return host, int(port)


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
