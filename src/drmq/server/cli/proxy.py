"""`drmq proxy`: a gateway without a node, in the foreground."""

from __future__ import annotations

import click

from drmq.server.cli.options import ClusterChoice, bootstrap_option

DEFAULT_HTTP_PORT = 8080
DEFAULT_GRPC_PORT = 9193


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_HTTP_PORT,
    show_default=True,
    metavar="N",
    help="Port for HTTP and the dashboard; 0 picks a free one.",
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_GRPC_PORT,
    show_default=True,
    metavar="N",
    help="Port for gRPC; 0 picks a free one.",
)
@click.option(
    "--http-names",
    default="",
    metavar="LIST",
    help="Names that browsers may use for a proxy on a loopback address, beside `localhost`: those of a reverse proxy "
    "on the same machine.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least severe level that is logged, on standard error.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines as text, or one JSON object per line.",
)
@click.option("--tracing", is_flag=True, help="Export traces over OTLP. Needs `drmq[otel]`.")
@bootstrap_option
def proxy(
    host: str,
    http_port: int,
    grpc_port: int,
    http_names: str,
    log_level: str,
    log_format: str,
    tracing: bool,
    cluster: ClusterChoice,
) -> int:
    """Serve HTTP, gRPC and the dashboard for a cluster, without a node.

    Keeps no data, so any number may run, also behind a load balancer. It needs one address of the cluster and learns
    the others. It goes on as long as the cluster does, whichever nodes are down: each call goes to the node that is
    responsible, and is repeated where that is safe. There is no authentication yet, so listen on a private address.

    \b
      drmq proxy -b node-1:9092,node-2:9092 --http-port 8080
    """
    from drmq.gateway.__main__ import main as serve
    from drmq.model.address import Address
    from drmq.server.gateway_child import open_listener, reserve_port
    from drmq.server.ports import check_port

    if http_port:
        check_port(Address(host, http_port), "--http-port")
    if grpc_port:
        check_port(Address(host, grpc_port), "--grpc-port")
    listener = open_listener(host, http_port)
    address = Address(host, listener.getsockname()[1])
    with reserve_port(host, grpc_port) as reserved:
        grpc_host, grpc_port = reserved.getsockname()[:2]
        click.echo(f"Serves HTTP at http://{address} for the cluster at {cluster.bootstrap}. Ctrl-C ends it.", err=True)
        click.echo(f"Serves gRPC at {Address(grpc_host, grpc_port)}.", err=True)
        options = ["--bootstrap", cluster.bootstrap, "--timeout", str(cluster.timeout_s), "--host", grpc_host]
        options += ["--http-names", http_names, "--log-level", log_level, "--log-format", log_format]
        options += ["--tracing"] if tracing else []
        return serve([*options, "--grpc-port", str(grpc_port), "--listener", str(listener.detach())])
