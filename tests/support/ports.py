"""Ports for brokers that stop and restart while clients try to connect.

A port that the system assigns is also one that it gives to outgoing connections. While the broker is down, a client
that connects to it in a loop may be given that very port as its own, and is then connected to itself; the broker cannot
restart. So brokers take ports outside of that range.
"""

from __future__ import annotations

from drmq.server.ports import free_ports

HOST = "127.0.0.1"


def lasting_port() -> int:
    """A free port that the system does not assign to outgoing connections."""
    return free_ports(HOST, 1)[0]
