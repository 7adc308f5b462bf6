"""What several handlers do with the topics of a request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
E = TypeVar("E")


def each_once(topics: Iterable[tuple[T, Iterable[E]]], question: Callable[[E], Hashable]) -> dict[T, list[E]]:
    """The entries of each topic without duplicates, in the order of the request.

    Two entries with the same `question` are duplicates. No client repeats itself, but a request could do so 100,000
    times, and would get an answer many times its size.
    """
    asked: dict[T, dict[Hashable, E]] = {}
    for topic, entries in topics:
        questions = asked.setdefault(topic, {})
        for entry in entries:
            questions.setdefault(question(entry), entry)
    return {topic: list(questions.values()) for topic, questions in asked.items()}
