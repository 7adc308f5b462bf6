"""The exceptions of the client.

DrmqError
  ClientError          every failure of a call, with its wire code if there is one
    Unreachable        no broker could be reached, or the connection broke
    DeadlineExceeded   the deadline of the call passed
    Refused            a broker responded with an error
    LeaseLost          messages were settled after their lease had ended
    Closed             the client was closed before the call, or during it

Users know `ClientError` as `drmq.Error`, and the others by their own names.
"""

from __future__ import annotations

from typing import NamedTuple

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
"""Codes of temporary states.

Kafka also calls UNKNOWN_TOPIC_OR_PARTITION and KAFKA_STORAGE_ERROR retriable. For a user at a prompt, the first is the
result of the command, and the second is a disk that will not recover while they wait.
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
"""Codes of a broker that cannot handle the request now: the responsible broker must be looked up again.

They also guarantee that the request had no effect, so that even a call that must not run twice can be repeated.
"""


class ClientError(DrmqError):
    """A failed call: what happened, the wire code or None, whether retrying can help, and what to do next.

    `grace_s`: for how many seconds after the start of a call retrying can help; None if until the call's deadline.
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
    """No broker could be reached, or the connection broke. `sent`: a broker may have received the request.

    `was_read_only`: the request changes nothing, so it does not matter whether a broker received it.
    """

    def __init__(self, message: str, *, sent: bool = False, advice: str = "") -> None:
        super().__init__(message, retriable=True, advice=advice)
        self.sent = sent
        self.was_read_only = False


class DeadlineExceeded(ClientError):
    """The deadline of the call passed."""


class Refused(ClientError):
    """An error response of a broker, with its code, and the broker's own message if it sent one."""

    def __init__(self, code: ErrorCode, message: str, *, advice: str = "") -> None:
        super().__init__(message, code=code, retriable=code in RETRIABLE, advice=advice)
        self.code: ErrorCode = code


class LostRun(NamedTuple):
    """Offsets of a partition, both ends included, whose lease had ended, and what the broker says about them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    reason: str

    def __str__(self) -> str:
        offsets = f"offset {self.first_offset}"
        if self.last_offset > self.first_offset:
            offsets = f"offsets {self.first_offset} to {self.last_offset}"
        return f"{self.topic}-{self.partition} {offsets} ({self.reason})"


_SHOWN_MAX = 3


class LeaseLost(ClientError):
    """The lease of one or more messages had ended: they were or will be delivered again. `lost` has their offsets."""

    def __init__(self, lost: tuple[LostRun, ...]) -> None:
        count = sum(run.last_offset - run.first_offset + 1 for run in lost)
        shown = ", ".join(map(str, lost[:_SHOWN_MAX])) + (", ..." if len(lost) > _SHOWN_MAX else "")
        super().__init__(
            f"The lease of {count} message{'s' if count != 1 else ''} has ended: {shown}",
            code=ErrorCode.INVALID_RECORD_STATE,
            advice="The group delivers them again, so the work must bear a repeat. If the work takes long, is the "
            "process short of CPU time, or was the cluster unreachable for longer than a lease lasts?",
        )
        self.lost = lost


class Closed(ClientError):
    """The client was closed before the call, or during it."""


def error_code(number: int) -> ErrorCode:
    """The code with this number; UNKNOWN_SERVER_ERROR for numbers that this version does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(number: int, what: str, said: str | None = None, advice: str = "") -> Refused:
    """The exception for an error code in a response. `what` is the sentence, `said` the broker's own message."""
    code = error_code(number)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and number != code:
        what = f"{what} (code {number}, which this version does not know)"
    if said:
        what = f"{what}: {said.rstrip('.')}"
    return Refused(code, what, advice=advice)
