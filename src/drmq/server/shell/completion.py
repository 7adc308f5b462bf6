"""Which words can follow what was typed: names of commands, topics and groups, and the words of a command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from drmq.model import DrmqError
from drmq.server.shell.grammar import COMMAND, COMMANDS, GROUP, TOPIC

if TYPE_CHECKING:
    from drmq.client import Admin

_KEPT_S = 5.0
"""For how long names are used again. A new topic is completed after this time at the latest."""
_TIMEOUT_S = 1.0


class Names:
    """The names of topics and groups, asked from the cluster when they are needed, and kept for a moment.

    Has a connection of its own, so that any thread may ask. Without an answer there are no names: a completion never
    fails.
    """

    def __init__(self, connect: Callable[[float], Admin], clock: Callable[[], float] = time.monotonic) -> None:
        """`connect` makes a client with a timeout in seconds."""
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[str, tuple[float, Sequence[str]]] = {}

    def of(self, kind: str) -> Sequence[str]:
        """All names that `TOPIC` or `GROUP` stands for."""
        with self._lock:
            asked_s, names = self._found.get(kind, (0.0, ()))
            if not names or self._clock() - asked_s > _KEPT_S:
                names = self._ask(kind)
                self._found[kind] = (self._clock(), names)
            return names

    def _ask(self, kind: str) -> Sequence[str]:
        try:
            with self._connect(_TIMEOUT_S) as admin:
                if kind == GROUP:
                    return [group.group_id for group in admin.groups.all()]
                return [topic.name for topic in admin.topics.all() if not topic.is_internal]
        except (DrmqError, OSError):
            return []


def candidates(line: str, names: Callable[[str], Iterable[str]]) -> tuple[str, list[str]]:
    """The word that is being typed at the end of a line, and everything that it can become."""
    words = line.split()
    typed = "" if not line or line[-1].isspace() else words.pop()
    return typed, sorted({word for word in _allowed(words, names) if word.startswith(typed)})


def _allowed(before: Sequence[str], names: Callable[[str], Iterable[str]]) -> Iterable[str]:
    if not before:
        return COMMANDS
    spec = COMMANDS.get(before[0].lower())
    place = len(before) - 1
    if spec is None or place >= len(spec.words):
        return ()
    found: list[str] = []
    for word in spec.words[place]:
        if word == COMMAND:
            found += COMMANDS
        elif word in (TOPIC, GROUP):
            found += names(word)
        else:
            found.append(word)
    return found
