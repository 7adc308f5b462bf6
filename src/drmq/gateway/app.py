"""The application: routes, limits and headers of every answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drmq import __version__
from drmq.gateway.endpoint import PREFIX, Endpoint, serve
from drmq.gateway.gateway import Gateway
from drmq.gateway.host_names import HostNames
from drmq.gateway.live import live, origin_is_allowed
from drmq.gateway.observed import Observed
from drmq.gateway.openapi import document
from drmq.gateway.problems import problem, respond
from drmq.gateway.routes import ENDPOINTS
from drmq.gateway.static_files import page
from drmq.gateway.unread_bodies import UnreadBodies
from drmq.model.metrics_text import CONTENT_TYPE

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; connect-src 'self' http: ws: https: wss:; img-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class SecurityHeaders:
    """Adds the headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


class NeighbourOrigins:
    """Lets the pages of the cluster's other gateways use the API: a page goes on here when its own node is gone.

    A page of any other origin gets no permission, so its browser does not let it read an answer, and sends no body in
    JSON, which needs a permission first. A browser does send a POST without a body, so writes are refused here.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        others = [each.http for each in self._gateway.addresses()]
        if origin is None or not origin_is_allowed(origin, None, others):
            host = Headers(scope=scope).get("host") if scope["type"] == "http" else None
            if origin is not None and scope["method"] in _WRITES and not origin_is_allowed(origin, host, others):
                refused = problem(403, f"a page of {origin} may not change anything here")
                await respond(refused)(scope, receive, send)
                return
            await self._app(scope, receive, send)
            return
        allowed = [(b"access-control-allow-origin", origin.encode()), (b"vary", b"Origin")]
        if scope["method"] == "OPTIONS":
            allowed += [
                (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE"),
                (b"access-control-allow-headers", b"Content-Type, Idempotency-Key, X-Request-Id, traceparent"),
                (b"access-control-max-age", b"600"),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": allowed})
            await send({"type": "http.response.body", "body": b""})
            return

        async def with_permission(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *allowed]
            await send(message)

        await self._app(scope, receive, with_permission)


class _ApiRoute(Route):
    """A path of the API. An encoded slash (`%2F`) belongs to a name and does not end it: groups may have such names."""

    _SLASH = re.compile("%2f", re.IGNORECASE)
    _KEPT = "\udc2f"
    """Stands for an encoded slash while the path is matched. Decoded text cannot contain it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return super().matches(scope)
        path = self._KEPT.join(map(unquote, self._SLASH.split(scope["raw_path"].decode("latin-1"))))
        match, found = super().matches({**scope, "path": path})
        if "path_params" in found:
            values = found["path_params"].items()
            found["path_params"] = {name: value.replace(self._KEPT, "/") for name, value in values}
        return match, found


def _handler(by_method: Mapping[str, Endpoint], gateway: Gateway) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await serve(by_method["GET" if request.method == "HEAD" else request.method], gateway, request)

    return handle


def _api_routes(endpoints: Iterable[Endpoint], gateway: Gateway) -> list[BaseRoute]:
    """One route for each path, so that status 405 names all methods of the path."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for each in endpoints:
        by_path.setdefault(each.path, {})[each.method] = each
    return [_ApiRoute(path, _handler(found, gateway), methods=list(found)) for path, found in by_path.items()]


async def _metrics(gateway: Gateway, request: Request) -> Response:
    return PlainTextResponse(await gateway.metrics.text(), media_type=CONTENT_TYPE)


async def _health(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _ready(gateway: Gateway, request: Request) -> Response:
    if gateway.sampler.last:
        return PlainTextResponse("ready\n")
    return PlainTextResponse("no node answers this gateway\n", 503)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    texts = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not offered here"}
    advice = "GET /api/v1/openapi.json lists the API." if request.url.path.startswith(PREFIX) else None
    answer = respond(problem(error.status_code, texts.get(error.status_code, error.detail), advice=advice))
    answer.headers.update(error.headers or {})
    return answer


async def _on_bug(request: Request, error: Exception) -> Response:
    # The server logs the error itself.
    return respond(problem(500, "the gateway failed on a bug; its log has the details"))


def application(gateway: Gateway) -> ASGIApp:
    """Everything that a gateway serves over HTTP."""
    openapi = msgspec.json.encode(document(ENDPOINTS, __version__))

    async def openapi_document(request: Request) -> Response:
        return Response(openapi, media_type="application/json")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        yield
        await gateway.stop()

    api = [
        *_api_routes(ENDPOINTS, gateway),
        Route("/openapi.json", openapi_document),
        WebSocketRoute("/live", partial(live, gateway)),
    ]
    app = Starlette(
        routes=[
            Mount(PREFIX, Router(api, redirect_slashes=False)),
            Route("/metrics", partial(_metrics, gateway)),
            Route("/healthz", _health),
            Route("/readyz", partial(_ready, gateway)),
            Route("/{path:path}", page),
        ],
        exception_handlers={HTTPException: _on_http_error, Exception: _on_bug},
        lifespan=lifespan,
    )
    inner = HostNames(NeighbourOrigins(app, gateway), gateway)
    return Observed(UnreadBodies(SecurityHeaders(inner)), gateway.http_counters)
