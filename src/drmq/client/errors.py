"""What can go wrong for a client.

DrmqError
  ClientError          every failure of a call, with its wire code if there is one
    Unreachable        no broker could be reached, or the connection broke
    DeadlineExceeded   the call's time was over before it was done
    Refused            a broker answered, and the answer was an error
"""

from __future__ import annotations

from drmq.model import DrmqError, ErrorCode

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes of states that pass by themselves.

Kafka also calls UNKNOWN_TOPIC_OR_PARTITION and KAFKA_STORAGE_ERROR retriable. To a person at a
prompt the first is the answer, and the second is a disk that will not mend while they wait.
"""

WRONG_NODE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Codes of one who cannot do it now: someone else may, and must be looked for.

They also say that nothing was done, so that even a call that must not run twice can be sent again.
"""


class ClientError(DrmqError):
    """A call that failed: what happened, the wire code or None, whether trying again can help, and what to do next.

    `grace_s` is how long after the beginning of a call trying again can help; None is as long as the call may take.
    """

    def __init__(
        self, message: str, *, code: ErrorCode | None = None, retriable: bool = False, advice: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retriable = retriable
        self.advice = advice
        self.grace_s: float | None = None

    def __str__(self) -> str:
        code = f" ({self.code.name})" if self.code is not None else ""
        return f"{self.message}{code}. {self.advice}".rstrip()


class Unreachable(ClientError):
    """No broker answered the door, or the line broke. `sent` says whether a broker may have the request.

    `was_question` says that the request was one that changes nothing, so that it does not matter who has it.
    """

    def __init__(self, message: str, *, sent: bool = False, advice: str = "") -> None:
        super().__init__(message, retriable=True, advice=advice)
        self.sent = sent
        self.was_question = False


class DeadlineExceeded(ClientError):
    """The time of the call was over."""


class Refused(ClientError):
    """A broker's answer, with its code; the broker's own words if it sent any."""

    def __init__(self, code: ErrorCode, message: str, *, advice: str = "") -> None:
        super().__init__(message, code=code, retriable=code in RETRIABLE, advice=advice)
        self.code: ErrorCode = code


def error_code(number: int) -> ErrorCode:
    """The code with this number; one that a newer broker invented counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(number: int, what: str, said: str | None = None, advice: str = "") -> Refused:
    """The exception for an error code in an answer. `what` is the sentence, `said` the broker's own words."""
    code = error_code(number)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != code:
        what = f"{what} (code {number}, which this version does not know)"
    if said:
        what = f"{what}: {said.rstrip('.')}"
    return Refused(code, what, advice=advice)
