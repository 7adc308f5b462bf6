"""The deadlines of consumer groups."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    """What a deadline is for."""

    SESSION = "session"
    PENDING_MEMBER = "pending member"
    INITIAL_DELAY = "initial delay"
    JOIN_ROUND = "join round"
    SYNC_ROUND = "sync round"


class TimerKey(NamedTuple):
    """The subject of a deadline. It has one deadline at a time."""

    kind: TimerKind
    group_id: str
    member_id: str = ""
