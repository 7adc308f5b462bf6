"""Errors of the system are in the log in words."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from drmq.telemetry.system_errors import in_words


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        # As the event loop of the standard library says it, and of all addresses of a name.
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('::1', 9)"), "Connection refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 9), [Errno 113] No route to host"),
            "Multiple exceptions: Connect call failed ('::1', 9), No route to host",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/data/x"), "/data/x: No such file or directory"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), b"/data/x"), "/data/x: No such file or directory"),
        (OSError(errno.EAGAIN, "a record cannot be replayed"), "a record cannot be replayed"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("an error of DRMQ"), "an error of DRMQ"),
    ],
)
def test_an_error_is_described_without_its_number(error: Exception, text: str) -> None:
    assert in_words(error) == text
