"""Endpoints: an async function over typed values, and the route, the checks and the documentation that follow from it.

    @endpoint("GET", "/topics/{topic}", "One topic.")
    async def topic(gateway: Gateway, params: TopicParams) -> TopicView: ...

`params` has the parts of the path and the query, `body` the decoded JSON, `caller` the client. The first two are
msgspec structs that refuse unknown names, so that a misspelt name is an error and not ignored. An error of any kind is
answered with a problem.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from drmq.client import ClientError
from drmq.gateway.caller import Caller, CallerGone
from drmq.gateway.problems import BUG, ProblemError, problem, problem_of, respond

if TYPE_CHECKING:
    from drmq.gateway.gateway import Gateway

log = logging.getLogger("drmq.gateway")

PREFIX: Final = "/api/v1"
ROUTE: Final = "drmq.route"
"""The name under which the scope of a request has its operation, once it is known."""
BODY_BYTES_MAX: Final = 8 * 1024 * 1024
_JSON = "application/json"
_CLIENT_CLOSED_REQUEST = 499
"""Nobody reads this status: it is for the log of a proxy."""
_PATH_NAME = re.compile(r"\{(\w+)(?::path)?\}")

Handler = Callable[..., Awaitable[Any]]


class Endpoint(NamedTuple):
    """One operation of the API."""

    method: str
    path: str
    """Below `PREFIX`."""
    summary: str
    handler: Handler
    params: type | None
    body: type | None
    answer: Any
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    """Names and meanings of headers that it reads."""
    takes_caller: bool = False

    @property
    def path_names(self) -> list[str]:
        return _PATH_NAME.findall(self.path)


ENDPOINTS: Final[list[Endpoint]] = []


def endpoint(
    method: str, path: str, summary: str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Callable[[Handler], Handler]:
    """Register a function as an operation of the API."""

    def register(handler: Handler) -> Handler:
        hints = get_type_hints(handler, include_extras=True)
        found = Endpoint(
            method,
            path,
            summary,
            handler,
            hints.get("params"),
            hints.get("body"),
            hints["return"],
            status,
            tuple((headers or {}).items()),
            "caller" in hints,
        )
        assert (found.params is not None) >= bool(found.path_names), f"{method} {path} needs `params`"
        assert inspect.iscoroutinefunction(handler), handler
        ENDPOINTS.append(found)
        return handler

    return register


async def serve(found: Endpoint, gateway: Gateway, request: Request) -> Response:
    """Decode a request, call the function, encode its answer or its error."""
    request.scope[ROUTE] = f"{found.method} {PREFIX}{found.path}"
    try:
        arguments: dict[str, Any] = {}
        if found.params is not None:
            arguments["params"] = _params(found, request)
        elif request.query_params:
            raise ProblemError(400, f"this operation has no parameter {next(iter(request.query_params))!r}")
        if found.body is not None:
            arguments["body"] = await _body(found, request)
        if found.takes_caller:
            arguments["caller"] = Caller(request)
        answer = await found.handler(gateway, **arguments)
    except CallerGone:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)
    except ProblemError as error:
        return respond(error.problem)
    except ClientError as error:
        return respond(problem_of(error))
    except Exception:
        log.exception("%s %s failed on a bug", request.method, request.url.path)
        return respond(problem(500, BUG))
    return Response(msgspec.json.encode(answer), found.status, {"Cache-Control": "no-store"}, _JSON)


def _params(found: Endpoint, request: Request) -> Any:
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise ProblemError(400, f"the parameter {name!r} is given twice")
        values[name] = value
    values |= request.path_params
    try:
        return msgspec.convert(values, found.params, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemError(400, f"the parameters are not valid: {error}") from None


async def _body(found: Endpoint, request: Request) -> Any:
    kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    if kind != _JSON:
        raise ProblemError(415, f"the body must be {_JSON}, not {kind!r}")
    data = bytearray()
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > BODY_BYTES_MAX):
        raise _too_large()
    async for part in request.stream():
        data += part
        if len(data) > BODY_BYTES_MAX:
            raise _too_large()
    try:
        return msgspec.json.decode(bytes(data) or b"{}", type=found.body)
    except msgspec.ValidationError as error:
        raise ProblemError(400, f"the body is not valid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(400, f"the body is not JSON: {error}") from None


def _too_large() -> ProblemError:
    return ProblemError(413, f"a body may have {BODY_BYTES_MAX} bytes", advice="Send the records in several requests.")
