"""Runs a gateway: `python -m drmq.gateway --bootstrap HOST:PORT`. Nodes start it so; users run `drmq proxy`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drmq.gateway.gateway import GatewayOptions

_MISSING_PACKAGES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        import uvicorn

        from drmq.gateway.app import application
        from drmq.gateway.gateway import Gateway
    except ImportError as error:
        print(f"the gateway needs a package that is not installed: {error.name}. Install drmq again.", file=sys.stderr)
        return _MISSING_PACKAGES
    options = _options(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if options.node_id is not None:
        threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    config = uvicorn.Config(
        application(Gateway(options)),
        host=options.host,
        port=options.http_port,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="websockets-sansio",
        ws_max_size=65_536,
        limit_concurrency=1_000,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=65_536,
    )
    listener = None if options.listener is None else [socket.socket(fileno=options.listener)]
    uvicorn.Server(config).run(listener)
    return 0


def _options(arguments: Sequence[str] | None) -> GatewayOptions:
    from drmq.gateway.gateway import GatewayOptions

    parser = argparse.ArgumentParser("drmq.gateway", description="HTTP and the dashboard for a DRMQ cluster.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT,...", help="nodes of the cluster")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--http-port", type=int, default=8080)
    parser.add_argument("--node-id", type=int, help="the node whose child this is; it ends with its parent")
    parser.add_argument("--listener", type=int, metavar="FD", help="a socket that listens already")
    found = parser.parse_args(arguments)
    return GatewayOptions(found.bootstrap, found.host, found.http_port, found.node_id, found.listener)


def _end_with_parent() -> None:
    """End this process when its parent is gone: standard input is a pipe that nobody writes to."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
