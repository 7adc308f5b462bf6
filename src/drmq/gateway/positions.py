"""Positions in a topic as a person names them: the beginning, the end, an offset, N before the end, a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from drmq.client import Admin, Bounds
from drmq.gateway.problems import ProblemError
from drmq.model import TopicPartition

FORMS = "A position is `earliest`, `latest`, an offset, `-N` for N before the end, or `@MILLISECONDS`, a time."

# Negative times are not times: the Kafka wire uses them for the ends of a partition.
_NUMBER = re.compile(r"[-@]?[0-9]{1,19}")


def resolve(
    admin: Admin, text: str, places: Iterable[TopicPartition], bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    """The offset of each partition at a position. An offset is taken as it is given, also beyond the end."""
    if text == "latest":
        return {place: bounds[place].end for place in places}
    if text == "earliest":
        return {place: bounds[place].start for place in places}
    if not _NUMBER.fullmatch(text):
        raise ProblemError(400, f"the position is not earliest, latest, an offset, -N or @MILLISECONDS: {text!r:.100}")
    number = int(text.removeprefix("@"))
    if not -(2**63) <= number < 2**63:
        raise ProblemError(400, f"the position is too large: {text!r:.100}")
    if text.startswith("@"):
        found = admin.topics.offsets(dict.fromkeys(places, number))
        return {place: bounds[place].end if (at := found[place].offset) < 0 else at for place in places}
    if text.startswith("-"):
        return {place: max(bounds[place].start, bounds[place].end + number) for place in places}
    return dict.fromkeys(places, number)
