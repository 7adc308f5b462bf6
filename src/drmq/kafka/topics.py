"""What several handlers do with the topics of a request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
E = TypeVar("E")


def each_once(topics: Iterable[tuple[T, Iterable[E]]], question: Callable[[E], Hashable]) -> dict[T, list[E]]:
    """What a request asks of each topic, and of it each question once, in the order of the request.

    A request may repeat itself a hundred thousand times. No client does, and the answer would be out of all proportion.
    """
    asked: dict[T, dict[Hashable, E]] = {}
    for topic, entries in topics:
        questions = asked.setdefault(topic, {})
        for entry in entries:
            questions.setdefault(question(entry), entry)
    return {topic: list(questions.values()) for topic, questions in asked.items()}
