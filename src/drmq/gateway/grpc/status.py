"""Errors as gRPC statuses: a code, a sentence, and details with Kafka's name of the error and when to try again.

The details are those of Google's error model, which libraries of all languages can read: `ErrorInfo` has the name as
its reason and the advice in its metadata, `RetryInfo` is there if the same call can succeed later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as StatusMessage

from drmq.client import ClientError
from drmq.gateway.problems import ProblemError, problem, problem_of
from drmq.gateway.types import Problem
from drmq.v1.records_pb2 import Error

DOMAIN: Final = "drmq"
RETRY_DELAY_S: Final = 1
DETAILS_KEY: Final = "grpc-status-details-bin"

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    416: grpc.StatusCode.OUT_OF_RANGE,
    422: grpc.StatusCode.DATA_LOSS,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_CODES_BY_NAME = {
    "TOPIC_ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "THROTTLING_QUOTA_EXCEEDED": grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class CallFailed(Exception):
    """Ends a call with a problem, and with more messages in the details of its status."""

    def __init__(self, found: Problem, details: Iterable[Message] = ()) -> None:
        super().__init__(found.detail)
        self.problem = found
        self.details = tuple(details)


class Status(NamedTuple):
    """What a failed call ends with."""

    code: grpc.StatusCode
    message: str
    details: bytes


def bad_request(detail: str, advice: str | None = None) -> CallFailed:
    return CallFailed(problem(400, detail, advice=advice))


EXPECTED: Final = (CallFailed, ProblemError, ClientError)
"""Failures of calls that are no bugs of the gateway."""


def problem_from(error: CallFailed | ProblemError | ClientError) -> tuple[Problem, tuple[Message, ...]]:
    """The problem of an expected failure, with what else is in the details."""
    if isinstance(error, CallFailed):
        return error.problem, error.details
    return (problem_of(error) if isinstance(error, ClientError) else error.problem), ()


def status_of(found: Problem, more: Iterable[Message] = ()) -> Status:
    code = _CODES_BY_NAME.get(found.code or "") or _CODES.get(found.status, grpc.StatusCode.UNKNOWN)
    metadata = {"retriable": str(found.retriable).lower()}
    if found.advice:
        metadata["advice"] = found.advice
    details: list[Message] = [ErrorInfo(reason=found.code or code.name, domain=DOMAIN, metadata=metadata)]
    if found.retriable:
        hint = RetryInfo()
        hint.retry_delay.FromSeconds(RETRY_DELAY_S)
        details.append(hint)
    message = StatusMessage(code=code.value[0], message=found.detail)
    for each in (*details, *more):
        packed = AnyMessage()
        packed.Pack(each)
        message.details.append(packed)
    return Status(code, found.detail, message.SerializeToString())


def item_error(error: ClientError) -> Error:
    """The error of one item, where others of the same call succeed."""
    name = "" if error.code is None else error.code.name
    return Error(code=name, message=error.message, advice=error.advice, retriable=error.retriable)
