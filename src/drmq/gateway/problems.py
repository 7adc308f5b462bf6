"""Errors as HTTP answers: problem details with DRMQ's words and Kafka's code."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from drmq.client import ClientError, DeadlineExceeded, Unreachable
from drmq.gateway.types import Problem
from drmq.model import ErrorCode
from drmq.telemetry import request_ids

MEDIA_TYPE = "application/problem+json"
BUG = "the gateway failed on a bug; its log has the details"
_TYPE = "about:blank"

_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.BROKER_ID_NOT_REGISTERED: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.DUPLICATE_RESOURCE: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    ErrorCode.REASSIGNMENT_IN_PROGRESS: 409,
    ErrorCode.ELECTION_NOT_NEEDED: 409,
    ErrorCode.INVALID_RECORD_STATE: 409,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.OFFSET_OUT_OF_RANGE: 416,
    ErrorCode.KAFKA_STORAGE_ERROR: 503,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
}
_TITLES = {
    400: "The request is not valid",
    403: "Not allowed",
    404: "Not found",
    405: "This method is not offered here",
    409: "The request conflicts with the present state",
    413: "Too large",
    415: "The media type is not supported",
    416: "Out of range",
    422: "The data cannot be used",
    429: "Too many requests",
    500: "A bug in the gateway",
    503: "The cluster cannot do this now",
    504: "No answer in time",
}


_CODES = {
    400: "BAD_REQUEST",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    416: "OUT_OF_RANGE",
    422: "UNUSABLE",
    429: "TOO_MANY_REQUESTS",
    500: "BUG",
    503: "UNAVAILABLE",
    504: "TIMED_OUT",
}
"""DRMQ's codes for problems that have neither a code of Kafka nor a more exact one: programs decide by the code."""


class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        advice: str | None = None,
        retriable: bool = False,
    ) -> None:
        super().__init__(detail)
        self.problem = problem(status, detail, code=code, advice=advice, retriable=retriable)


def problem(
    status: int, detail: str, *, code: str | None = None, advice: str | None = None, retriable: bool = False
) -> Problem:
    title = _TITLES.get(status, "Error")
    return Problem(_TYPE, title, status, detail, code, advice or None, retriable)


def problem_of(error: ClientError) -> Problem:
    """The problem for a failed call to the cluster."""
    if isinstance(error, DeadlineExceeded):
        status = 504
    elif isinstance(error, Unreachable):
        status = 503
    elif error.code is None:
        status = 503 if error.retriable else 400
    else:
        status = _STATUS.get(error.code, 503 if error.retriable else 400)
    code = None if error.code is None else error.code.name
    return problem(status, error.message, code=code, advice=error.advice, retriable=error.retriable)


def respond(found: Problem) -> Response:
    headers = {"Retry-After": "1"} if found.retriable else None
    found.request_id = request_ids.current.get() or None
    found.code = found.code or _CODES.get(found.status, "ERROR")
    kafka = ErrorCode.__members__.get(found.code)
    found.kafka_code = None if kafka is None else kafka.value
    return Response(msgspec.json.encode(found), found.status, headers, MEDIA_TYPE)
