"""Starts a command in a network of its own, where every port is free: `own_network.py COMMAND ARGUMENT...`.

The network has nothing but the loopback interface. Root may make one; others may where the kernel lets them have a user
namespace. Ends with `UNAVAILABLE` where neither is so.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

UNAVAILABLE = 77
_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def enter() -> None:
    """Move this process into a new network. Raises `OSError` where that is not allowed."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET if user == 0 else _CLONE_NEWNET | _CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")
    if user != 0:
        # The same user inside as outside.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def is_available() -> bool:
    """Whether this machine allows it; tried, not guessed."""
    return subprocess.run([sys.executable, __file__, "true"], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    try:
        enter()
    except OSError as error:
        print(f"no network of its own: {error}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    os.execvp(sys.argv[1], sys.argv[1:])
