"""Runs a gateway: `python -m drmq.gateway --bootstrap HOST:PORT`. Nodes start it so; users run `drmq proxy`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

import uvicorn

from drmq.gateway.app import application
from drmq.gateway.gateway import Gateway, GatewayOptions


def main(arguments: Sequence[str] | None = None) -> int:
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
    uvicorn.Server(config).run()
    return 0


def _options(arguments: Sequence[str] | None) -> GatewayOptions:
    parser = argparse.ArgumentParser("drmq.gateway", description="HTTP and the dashboard for a DRMQ cluster.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT,...", help="nodes of the cluster")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--http-port", type=int, default=8080)
    parser.add_argument("--node-id", type=int, help="the node whose child this is; it ends with its parent")
    parser.add_argument("--gateways", default="", metavar="ID=HOST:PORT,...", help="other gateways of the cluster")
    found = parser.parse_args(arguments)
    pairs = [part.partition("=") for part in found.gateways.split(",") if part]
    gateways = tuple((int(node_id), http) for node_id, _, http in pairs)
    return GatewayOptions(found.bootstrap, found.host, found.http_port, found.node_id, gateways)


def _end_with_parent() -> None:
    """End this process when its parent is gone: standard input is a pipe that nobody writes to."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
