"""Runs a gateway: `python -m drmq.gateway --bootstrap HOST:PORT`. Nodes start it so; users run `drmq proxy`."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from drmq.telemetry import logs, tracing

if TYPE_CHECKING:
    from drmq.gateway.gateway import GatewayOptions

_MISSING_PACKAGES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        import uvicorn

        from drmq.gateway.app import application
        from drmq.gateway.gateway import Gateway
        from drmq.gateway.http_connection import HttpConnection
        from drmq.gateway.http_server import HttpServer
        from drmq.gateway.preload import import_all

        import_all()
    except ImportError as error:
        print(f"the gateway needs a package that is not installed: {error.name}. Install drmq again.", file=sys.stderr)
        return _MISSING_PACKAGES
    options = _options(arguments)
    fields: dict[str, str | int] = {"process": "gateway"}
    if options.node_id is not None:
        fields["node_id"] = options.node_id
    repeats = logs.configure(options.log_level, options.log_format, fields=fields)
    traces = None
    if options.tracing:
        try:
            traces = tracing.start("drmq-gateway", {f"drmq.{name}": value for name, value in fields.items()})
        except tracing.PackageMissing as error:
            print(error, file=sys.stderr)
            return _MISSING_PACKAGES
    if options.node_id is not None:
        threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    gateway = Gateway(options)
    config = uvicorn.Config(
        application(gateway),
        host=options.host,
        port=options.http_port,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=HttpConnection,
        ws="websockets-sansio",
        ws_max_size=65_536,
        limit_concurrency=1_000,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=65_536,
    )
    listener = None if options.listener is None else [socket.socket(fileno=options.listener)]
    HttpServer(config, gateway).run(listener)
    tracing.stop(traces)
    logs.report_counts(repeats)
    return 0


def _options(arguments: Sequence[str] | None) -> GatewayOptions:
    from drmq.gateway.gateway import GatewayOptions

    parser = argparse.ArgumentParser("drmq.gateway", description="HTTP, gRPC and the dashboard for a DRMQ cluster.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT,...", help="nodes of the cluster")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--http-port", type=int, default=8080)
    parser.add_argument("--grpc-port", type=int, metavar="PORT", help="0 picks a free one; default: no gRPC")
    parser.add_argument("--node-id", type=int, help="the node whose child this is; it ends with its parent")
    parser.add_argument("--listener", type=int, metavar="FD", help="a socket that listens already")
    parser.add_argument("--timeout", type=float, default=15.0, metavar="SECONDS", help="for one call to the cluster")
    parser.add_argument("--lab", type=Path, metavar="DIR", help="the local cluster that the fault lab works on")
    parser.add_argument("--http-names", default="", metavar="NAME,...", help="further names of this gateway")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument("--tracing", action="store_true", help="export traces over OTLP; needs drmq[otel]")
    found = parser.parse_args(arguments)
    return GatewayOptions(
        found.bootstrap,
        found.host,
        found.http_port,
        found.node_id,
        found.listener,
        grpc_port=found.grpc_port,
        timeout_s=found.timeout,
        lab=found.lab,
        http_names=tuple(name for name in found.http_names.split(",") if name),
        log_level=found.log_level,
        log_format=found.log_format,
        tracing=found.tracing,
    )


def _end_with_parent() -> None:
    """End this process when its parent is gone: standard input is a pipe that nobody writes to."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
