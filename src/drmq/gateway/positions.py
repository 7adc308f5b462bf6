"""Positions in a topic as a person names them: the beginning, the end, an offset, N before the end, a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from drmq.client import Admin, Bounds
from drmq.gateway.problems import ProblemError
from drmq.model import TopicPartition

FORMS = "A position is `earliest`, `latest`, an offset, `-N` for N before the end, or `@MILLISECONDS`, a time."


def resolve(
    admin: Admin, text: str, places: Iterable[TopicPartition], bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    """The offset of each partition at a position. An offset is taken as it is given, also beyond the end."""
    if text == "latest":
        return {place: bounds[place].end for place in places}
    if text == "earliest":
        return {place: bounds[place].start for place in places}
    try:
        number = int(text.removeprefix("@"))
    except ValueError:
        raise ProblemError(
            400, f"the position is not earliest, latest, an offset, -N or @MILLISECONDS: {text!r}"
        ) from None
    if not -(2**63) <= number < 2**63:
        raise ProblemError(400, f"the position is too large: {text!r}")
    if text.startswith("@"):
        found = admin.topics.offsets(dict.fromkeys(places, number))
        return {place: bounds[place].end if (at := found[place].offset) < 0 else at for place in places}
    if text.startswith("-"):
        return {place: max(bounds[place].start, bounds[place].end + number) for place in places}
    return dict.fromkeys(places, number)
