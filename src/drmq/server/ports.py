"""TCP ports of this machine: checks that an address can be bound, and the error text if it cannot."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Sequence
from pathlib import Path

from drmq.model import DrmqError
from drmq.model.address import Address

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_START_DEFAULT = 32_768
_FIRST = 10_000
_ATTEMPTS = 200


class PortTaken(DrmqError):
    """An address cannot be bound. The message says why and what to do."""


def check_port(address: Address, option: str = "--port", host_option: str = "--host") -> None:
    """Raise `PortTaken` if this address cannot be bound now. The options are those that the error text suggests."""
    try:
        with socket.socket(family(address.host)) as probe:
            # Bind without listening: a client that is trying to reconnect would connect and be disconnected at once.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else "the host name cannot be resolved"
        if number == errno.EADDRNOTAVAIL:
            reason = "this machine does not have that address"
        raise PortTaken(f"Cannot listen on {address}: {reason}. {_advice(number, option, host_option)}") from None


def is_free(host: str, port: int) -> bool:
    try:
        check_port(Address(host, port))
    except PortTaken:
        return False
    return True


def free_ports(host: str, count: int, distances: Sequence[int] = (0,)) -> list[int]:
    """Consecutive ports that are free, also at these distances, and outside the range of ephemeral ports.

    The system could give an ephemeral port to an outgoing connection while the server that owns the port is down.
    """
    end = int(_EPHEMERAL_RANGE.read_text().split()[0]) if _EPHEMERAL_RANGE.exists() else _EPHEMERAL_START_DEFAULT
    end = max(end - count - max(distances), _FIRST + _ATTEMPTS)
    # Deliberately not seeded: several processes must not try the same sequence of ports.
    for first in random.SystemRandom().sample(range(_FIRST, end), _ATTEMPTS):
        ports = list(range(first, first + count))
        if all(is_free(host, port + distance) for port in ports for distance in distances):
            return ports
    raise PortTaken(f"Found no {count} consecutive free ports on {host}. Choose the first one with --port.")


def family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _advice(number: int, option: str, host_option: str) -> str:
    # Errors of name resolution have negative numbers.
    if number <= 0 or number == errno.EADDRNOTAVAIL:
        return f"Choose an address of this machine with {host_option}."
    if number == errno.EACCES:
        return f"Ports below 1024 need special privileges. Choose another port with {option}."
    return f"Stop the process that uses the port, or choose another port with {option} (0 picks a free one)."
