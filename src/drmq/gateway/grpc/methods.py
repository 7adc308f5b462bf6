"""Handlers for all methods of a service, made from its descriptor, with what is the same for every call.

A service is an object with one function for each method, under the method's name in lower case: `append_stream` for
`AppendStream`. A function with a single request gets it, returns a single response, and is given `CALL_S_MAX` seconds
if the client sets no shorter deadline. Streams get an iterator of requests, or write responses with `Call.write`.

Every error is answered with a status that says what happened. A stream also ends when the gateway stops, with a status
that asks the client to go on elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from drmq.gateway.grpc.observed import observed
from drmq.gateway.grpc.status import DETAILS_KEY, EXPECTED, bad_request, problem_from, status_of
from drmq.gateway.observed import CallCounters
from drmq.gateway.problems import BUG, problem
from drmq.gateway.types import Problem

log = logging.getLogger("drmq.gateway")

CALL_S_MAX: Final = 60.0
"""How long a call with a single response may take."""
SLOW_READER_S: Final = 60.0
"""How long a response of a stream waits for a client that does not read."""

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class Call:
    """One call, as the functions of a service see it."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = asyncio.Lock()

    @property
    def left_s(self) -> float | None:
        """The time until the client's deadline; None if it has none."""
        found: float | None = self._context.time_remaining()
        return found

    async def write(self, response: Message) -> None:
        """Send a response of a stream. Waits while the client does not read, but not for ever."""
        async with self._lock:
            try:
                async with asyncio.timeout(SLOW_READER_S):
                    await self._context.write(response)
            except TimeoutError:
                raise SlowReader from None


class SlowReader(Exception):
    """A client has not read its responses."""


class Stopping:
    """Whether the gateway stops. Streams end when it does."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def run(self, work: Awaitable[None]) -> bool:
        """Wait for the work, or until the gateway stops. Returns whether the work was finished."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
                return True
            return False
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def function_name(method: str) -> str:
    """The name of the function for a method: `append_stream` for `AppendStream`."""
    return _WORD_START.sub("_", method).lower()


def handlers(
    service: ServiceDescriptor, implementation: object, stopping: Stopping, counters: CallCounters
) -> grpc.GenericRpcHandler:
    """The handlers of a service. Fails if a method has no function."""
    found = {}
    for method in service.methods:
        function = getattr(implementation, function_name(method.name))
        found[method.name] = _handler(method, function, stopping, counters)
    return grpc.method_handlers_generic_handler(service.full_name, found)


def _handler(
    method: MethodDescriptor, function: Callable[..., Any], stopping: Stopping, counters: CallCounters
) -> grpc.RpcMethodHandler:
    request_class, response_class = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

    def read(data: bytes) -> Message | None:
        try:
            return request_class.FromString(data)
        except DecodeError:
            # An exception here would end the call with a status that blames the server.
            return None

    async def answer_one(request: Message | None, context: Any) -> Any:
        async def work() -> Message:
            async with asyncio.timeout(CALL_S_MAX):
                found: Message = await function(_decoded(request), Call(context))
                return found

        return await _guarded(method, context, counters, work)

    async def answer_stream(request: Any, context: Any) -> None:
        argument = _decoded_all(request) if method.client_streaming else None

        async def work() -> None:
            call = Call(context)
            if not await stopping.run(function(argument or _decoded(request), call)):
                raise _Stopped

        await _guarded(method, context, counters, work)

    if method.server_streaming:
        make = (
            grpc.stream_stream_rpc_method_handler if method.client_streaming else grpc.unary_stream_rpc_method_handler
        )
        return make(answer_stream, read, response_class.SerializeToString)
    assert not method.client_streaming, f"{method.full_name}: a stream with a single response is not supported"
    return grpc.unary_unary_rpc_method_handler(answer_one, read, response_class.SerializeToString)


class _Stopped(Exception):
    """The gateway stops while a stream is open."""


def _decoded(request: Message | None) -> Message:
    if request is None:
        raise bad_request("the request cannot be decoded", "Is the client generated from the same .proto files?")
    return request


async def _decoded_all(requests: AsyncIterator[Message | None]) -> AsyncIterator[Message]:
    async for request in requests:
        yield _decoded(request)


async def _guarded(
    method: MethodDescriptor, context: Any, counters: CallCounters, work: Callable[[], Awaitable[Any]]
) -> Any:
    """Do the work of a call. Its failure is answered with a status."""
    async with observed(method, context, counters) as outcome:
        try:
            answer = await work()
        except (*EXPECTED, TimeoutError, SlowReader, _Stopped, ExceptionGroup) as error:
            found, more = _problem_of_call(method, _first(error))
        except Exception:
            log.exception("%s failed on a bug", method.full_name)
            found, more = _bug(), ()
        else:
            outcome.status = grpc.StatusCode.OK.name
            return answer
        code, message, details = status_of(found, more)
        outcome.status = code.name
    return await context.abort(code, message, ((DETAILS_KEY, details), *context.trailing_metadata()))


def _first(error: Exception) -> Exception:
    """The first error of tasks that ran together, or the error itself."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _problem_of_call(method: MethodDescriptor, error: Exception) -> tuple[Problem, tuple[Message, ...]]:
    if isinstance(error, EXPECTED):
        return problem_from(error)
    if isinstance(error, TimeoutError):
        return problem(504, f"{method.name} was not finished within {CALL_S_MAX:g} s", retriable=True), ()
    if isinstance(error, SlowReader):
        text = f"the client has read nothing for {SLOW_READER_S:g} s"
        return problem(429, text, advice="Read faster, or ask for less."), ()
    if isinstance(error, _Stopped):
        return problem(503, "this gateway stops", advice="Connect to another gateway.", retriable=True), ()
    log.error("%s failed on a bug", method.full_name, exc_info=error)
    return _bug(), ()


def _bug() -> Problem:
    return problem(500, BUG)
