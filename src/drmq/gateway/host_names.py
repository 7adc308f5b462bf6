"""Which names a request may use for a gateway that listens on a loopback address.

A web site can give its own name the address 127.0.0.1 after a browser has loaded its page (DNS rebinding). To the
browser, the gateway is then a part of that site: its page may read every answer, and its origin is that of the
gateway. Only the name in the header `Host` tells. So a request that arrives at a loopback address must name the gateway
by an address, by `localhost`, or by a name that is known to lead here. Other requests come through a network, where
names are not known to the gateway, and are not checked.
"""

from __future__ import annotations

import ipaddress
import socket

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from drmq.client import split_address
from drmq.gateway.gateway import Gateway
from drmq.gateway.problems import problem, respond
from drmq.model.address import is_loopback


class HostNames:
    """Refuses requests that name the gateway by a name which is not its own."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway
        self._own = {socket.gethostname().lower(), *(name.lower() for name in gateway.options.http_names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            host = Headers(scope=scope).get("host", "")
            if not self._is_allowed(scope, host):
                refused = problem(
                    403,
                    f"this gateway is not known by the name {host[:200]!r}",
                    code="UNKNOWN_HOST_NAME",
                    advice="Use the address 127.0.0.1 or the name localhost, or add the name to `http_names`.",
                )
                await respond(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_allowed(self, scope: Scope, host: str) -> bool:
        arrived = scope.get("server")
        if arrived is None or not is_loopback(arrived[0]):
            return True
        try:
            name = split_address(host)[0].lower().rstrip(".")
        except ValueError:
            return False
        return _is_address(name) or name == "localhost" or name in self._own or name in self._cluster()

    def _cluster(self) -> set[str]:
        """The names of nodes and gateways, as they are advertised."""
        names = {broker.address.host.lower() for broker in self._gateway.sampler.brokers}
        return names | {split_address(each.http)[0].lower() for each in self._gateway.addresses()}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
