"""The exceptions of the Spark connector.

DrmqError
  SparkSideError
    OptionsError      invalid options: all problems at once, each with its remedy
    DataLoss          records that the query should read were deleted
    TopicChanged      a topic was deleted
      TopicRecreated  and created again
    ClusterFailed     the cluster could not be reached, or refused a request
    FetchFailed       a partition could not be read before the deadline
    WriteFailed       records could not be written before the deadline
    SetupError        Java, Python or a package is missing or wrong

Spark prints an error with every frame below it, twice, and the last line is what the user needs. Methods that Spark
calls are therefore wrapped: an error for the user is raised without the frames that led to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from drmq.model import DrmqError

P = ParamSpec("P")
T = TypeVar("T")


class SparkSideError(DrmqError):
    """Any failure of the connector. The text says what happened, why, and what to do."""


class OptionsError(SparkSideError):
    """Invalid options. `problems` has one sentence for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        lines = "".join(f"\n  - {problem}" for problem in problems)
        count = "1 option" if len(problems) == 1 else f"{len(problems)} options"
        super().__init__(f"The data source drmq cannot use {count}:{lines}")

    def __reduce__(self) -> tuple[type[OptionsError], tuple[tuple[str, ...]]]:
        return OptionsError, (self.problems,)


class DataLoss(SparkSideError):
    """Records between the query's position and its end were deleted before they were read."""


class TopicChanged(SparkSideError):
    """The topic that the query was reading was deleted."""


class TopicRecreated(TopicChanged):
    """The topic that the query was reading was deleted, and another one with the same name exists."""


class ClusterFailed(SparkSideError):
    """A broker could not be reached, or refused a request."""


class FetchFailed(SparkSideError):
    """A partition could not be read in time."""


class WriteFailed(SparkSideError):
    """Not every record was acknowledged."""


class SetupError(SparkSideError):
    """Something that Spark needs is missing on this machine, or has the wrong version."""


def user_facing(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap `method` so that its errors reach the user without the frames in between."""

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(*arguments, **named)
        except DrmqError as error:
            raise _user_error(error) from None

    return call


def user_facing_iterator(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for a method that returns an iterator."""

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*arguments, **named)
        except DrmqError as error:
            raise _user_error(error) from None

    return call


def _user_error(error: DrmqError) -> DrmqError:
    from drmq.client import ClientError

    if isinstance(error, ClientError):
        return ClusterFailed(user_text(error))
    return error.with_traceback(None)


def user_text(error: DrmqError) -> str:
    """The text of an error of the client, with advice that names options instead of command-line flags."""
    from drmq.client import ClientError, DeadlineExceeded, Unreachable

    if not isinstance(error, ClientError):
        return str(error)
    advice = error.advice
    if isinstance(error, Unreachable):
        advice = (
            "Is a broker running there? `kafka.bootstrap.servers` sets the brokers to connect to first. List several, "
            "so that one of them may be down."
        )
    elif isinstance(error, DeadlineExceeded):
        advice = "The broker may be overloaded or stopped. Check `drmq status`, or use a longer `timeoutMs`."
    code = f" ({error.code.name})" if error.code is not None else ""
    return f"{error.message}{code}. {advice}".rstrip()
