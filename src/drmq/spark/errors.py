"""What can go wrong between Spark and a topic.

DrmqError
  SparkSideError
    OptionsError      the user's options: all problems at once, each with its remedy
    DataLoss          records that the query should read are gone
    TopicChanged      a topic was deleted, or deleted and created again
    FetchFailed       a partition could not be read before the deadline
    WriteFailed       records could not be written before the deadline
    SetupError        Java, Python or a package is missing or wrong
"""

from __future__ import annotations

from collections.abc import Sequence

from drmq.model import DrmqError


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


class FetchFailed(SparkSideError):
    """A partition could not be read in time."""


class WriteFailed(SparkSideError):
    """Not every record was acknowledged."""


class SetupError(SparkSideError):
    """Something that Spark needs is not on this machine, or is the wrong version."""
