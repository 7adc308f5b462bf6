"""Ports for brokers that go away and come back while clients try to connect.

A port that the system hands out is also one that it gives to outgoing connections. While the broker is down, a client
that connects to it in a loop may be given that very port as its own, and is then connected to itself; the broker
cannot come back. So such a broker takes a port outside of that range.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from support.processes import HOST, free_port

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def lasting_port() -> int:
    """A free port that the system does not give to anyone by itself."""
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    # Not seeded on purpose: several test processes must not go through the same row of ports.
    chance = random.SystemRandom()
    for _ in range(200):
        port = chance.randrange(10_000, max(first, 11_000))
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
    return free_port()
