"""Ports of the gateway: kept for it, refused if somebody else has them."""

from __future__ import annotations

import socket

import pytest

from drmq.server.gateway_child import open_listener, reserve_port

HOST = "127.0.0.1"


def bound_like_grpcio(port: int) -> socket.socket:
    """A socket that listens as grpcio's do."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind((HOST, port))
    found.listen()
    return found


def test_the_child_gets_a_reserved_port_again_and_again() -> None:
    with reserve_port(HOST, 0) as reserved:
        port = reserved.getsockname()[1]
        for _ in range(3):
            with bound_like_grpcio(port) as listener, socket.create_connection((HOST, port), timeout=10):
                connection, _ = listener.accept()
                connection.close()


def test_nobody_else_gets_a_reserved_port() -> None:
    with reserve_port(HOST, 0) as reserved:
        port = reserved.getsockname()[1]
        for take in (open_listener, reserve_port):
            with pytest.raises(OSError, match="in use"):
                take(HOST, port)
        with bound_like_grpcio(port), pytest.raises(OSError, match="in use"):
            reserve_port(HOST, port)


def test_a_port_that_is_used_is_not_reserved() -> None:
    with open_listener(HOST, 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            reserve_port(HOST, port)
    reserve_port(HOST, port).close()
