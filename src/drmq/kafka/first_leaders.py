"""Answers about leaders, which wait for the first leaders of a topic that has just been created.

A client that creates a topic asks for its leaders next, on whichever node. Without waiting, it would often get
LEADER_NOT_AVAILABLE, and ask again after a pause that is longer than the election.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from drmq.broker.cluster.new_partitions import NewPartitions
from drmq.model import TopicId

R = TypeVar("R")

WAIT_S = 3.0
"""How long an answer waits. After that, it says that there is no leader."""


def when_led(new: NewPartitions, topics: Iterable[TopicId], answer: Callable[[], R]) -> R | Awaitable[R]:
    """The answer about these topics, at once or when their first leaders are known."""
    waited_for = [topic_id for topic_id in topics if topic_id in new]
    return _wait(new, waited_for, answer) if waited_for else answer()


async def _wait(new: NewPartitions, topics: Iterable[TopicId], answer: Callable[[], R]) -> R:
    await new.wait(topics, WAIT_S)
    return answer()
