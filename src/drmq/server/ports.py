"""Ports of this machine: whether one can be listened on, and what to say if not."""

from __future__ import annotations

import errno
import os
import socket

from drmq.model import DrmqError
from drmq.model.address import Address


class PortTaken(DrmqError):
    """An address that cannot be listened on, with what to do about it."""


def check_port(address: Address) -> None:
    """Raise `PortTaken` if nobody could listen there now."""
    try:
        with socket.socket(family(address.host)) as probe:
            # Bound, but not listening: a client that is trying to reconnect would be let in and thrown out.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else "this name is not known"
        raise PortTaken(f"Cannot listen on {address}: {reason}. {_advice(number)}") from None


def family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _advice(number: int) -> str:
    # Look-ups of names have numbers of their own, below zero.
    if number <= 0 or number == errno.EADDRNOTAVAIL:
        return "Choose an address of this machine with --host."
    if number == errno.EACCES:
        return "Ports below 1024 need special rights: choose another port with --port."
    return "Stop what is there, or choose another port with --port (0 takes a free one)."
