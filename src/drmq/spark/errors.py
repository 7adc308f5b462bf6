"""What can go wrong between Spark and a topic.

DrmqError
  SparkSideError
    OptionsError      the user's options: all problems at once, each with its remedy
    DataLoss          records that the query should read are gone
    TopicChanged      a topic was deleted
      TopicRecreated  and created again
    ClusterFailed     the cluster could not be reached, or refused a question
    FetchFailed       a partition could not be read before the deadline
    WriteFailed       records could not be written before the deadline
    SetupError        Java, Python or a package is missing or wrong

Spark shows an error with every frame below it, twice, and its last line is what the user needs. So what Spark
calls is wrapped: an error that is meant for the user leaves without the frames that led to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from drmq.model import DrmqError

P = ParamSpec("P")
T = TypeVar("T")


class SparkSideError(DrmqError):
    """Any failure of the connector; the text says what, why and what next."""


class OptionsError(SparkSideError):
    """Options that cannot be used. `problems` has one sentence for each."""

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
    """The topic that the query was reading is not there any more; one of the same name may be."""


class TopicRecreated(TopicChanged):
    """The topic that the query was reading is not there any more, and one of the same name is."""


class ClusterFailed(SparkSideError):
    """A broker could not be reached, or would not answer."""


class FetchFailed(SparkSideError):
    """A partition could not be read in time."""


class WriteFailed(SparkSideError):
    """Not every record was acknowledged."""


class SetupError(SparkSideError):
    """Something that Spark needs is not on this machine, or is the wrong version."""


def plainly(method: Callable[P, T]) -> Callable[P, T]:
    """`method`, whose errors reach the user without the frames between."""

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(*arguments, **named)
        except DrmqError as error:
            raise _for_user(error) from None

    return call


def plainly_each(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for a method that gives out one thing after the other."""

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*arguments, **named)
        except DrmqError as error:
            raise _for_user(error) from None

    return call


def _for_user(error: DrmqError) -> DrmqError:
    from drmq.client import ClientError

    if isinstance(error, ClientError):
        return ClusterFailed(in_words(error))
    return error.with_traceback(None)


def in_words(error: DrmqError) -> str:
    """An error of the client with advice that names options, where its own would name those of the command line."""
    from drmq.client import ClientError, DeadlineExceeded, Unreachable

    if not isinstance(error, ClientError):
        return str(error)
    advice = error.advice
    if isinstance(error, Unreachable):
        advice = (
            "Is a broker running there? `kafka.bootstrap.servers` names the brokers to ask first; with several of "
            "them, one that is down does not matter."
        )
    elif isinstance(error, DeadlineExceeded):
        advice = "The broker may be overloaded or stopped: `drmq status` tells. `timeoutMs` waits longer."
    code = f" ({error.code.name})" if error.code is not None else ""
    return f"{error.message}{code}. {advice}".rstrip()
