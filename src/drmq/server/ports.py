"""Ports of this machine: whether one can be listened on, and what to say if not."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Sequence
from pathlib import Path

from drmq.model import DrmqError
from drmq.model.address import Address

_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_HANDED_OUT_BY_DEFAULT = 32_768
_FIRST = 10_000
_ATTEMPTS = 200


class PortTaken(DrmqError):
    """An address that cannot be listened on, with what to do about it."""


def check_port(address: Address, option: str = "--port", host_option: str = "--host") -> None:
    """Raise `PortTaken` if nobody could listen there now, with the options by which another place is chosen."""
    try:
        with socket.socket(family(address.host)) as probe:
            # Bound, but not listening: a client that is trying to reconnect would be let in and thrown out.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else "this name is not known"
        raise PortTaken(f"Cannot listen on {address}: {reason}. {_advice(number, option, host_option)}") from None


def is_free(host: str, port: int) -> bool:
    try:
        check_port(Address(host, port))
    except PortTaken:
        return False
    return True


def free_ports(host: str, count: int, distances: Sequence[int] = (0,)) -> list[int]:
    """Ports in a row that are free, also at these distances, and that the system does not hand out by itself.

    One that it hands out could become the local end of somebody's connection while the server that owns it is down.
    """
    end = int(_HANDED_OUT.read_text().split()[0]) if _HANDED_OUT.exists() else _HANDED_OUT_BY_DEFAULT
    end = max(end - count - max(distances), _FIRST + _ATTEMPTS)
    # Not seeded on purpose: several processes must not go through the same row of ports.
    for first in random.SystemRandom().sample(range(_FIRST, end), _ATTEMPTS):
        ports = list(range(first, first + count))
        if all(is_free(host, port + distance) for port in ports for distance in distances):
            return ports
    raise PortTaken(f"No {count} free ports in a row were found on {host}. Choose the first with --port.")


def family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _advice(number: int, option: str, host_option: str) -> str:
    # Look-ups of names have numbers of their own, below zero.
    if number <= 0 or number == errno.EADDRNOTAVAIL:
        return f"Choose an address of this machine with {host_option}."
    if number == errno.EACCES:
        return f"Ports below 1024 need special rights: choose another port with {option}."
    return f"Stop what is there, or choose another port with {option} (0 takes a free one)."
