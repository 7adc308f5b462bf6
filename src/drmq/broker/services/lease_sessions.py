"""Sessions of members of lease groups with this node: which partitions each of them works on here.

A session belongs to a group and a member. Its epoch counts the requests, so that a repeated or lost one is noticed. The
partitions of a session are asked in turn, each request beginning with the next one, so that a busy partition does not
keep the others waiting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from drmq.broker.services.lease_calls import Place
from drmq.model import ApiError, ErrorCode

OPENS = 0
CLOSES = -1
_EPOCH_MAX = 0x7FFFFFFF


class LeaseSession:
    """The partitions of one member on this node."""

    __slots__ = ("_places", "epoch")

    def __init__(self) -> None:
        self._places: OrderedDict[Place, None] = OrderedDict()
        self.epoch = 1
        """The epoch that the next request must have."""

    def change(self, added: Iterable[Place], removed: Iterable[Place]) -> None:
        for place in added:
            self._places.setdefault(place)
        for place in removed:
            self._places.pop(place, None)

    def in_turn(self) -> list[Place]:
        """All partitions; the next call begins with the next one."""
        places = list(self._places)
        if len(places) > 1:
            self._places.move_to_end(places[0])
        return places


class LeaseSessions:
    """The sessions of all members with this node."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._sessions: dict[tuple[str, str], LeaseSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def use(self, group: str, member: str, epoch: int) -> LeaseSession:
        """The session of a request: a new one for epoch 0. Raises `ApiError`."""
        key = (group, member)
        session = self._sessions.get(key)
        if epoch == OPENS:
            if session is None and len(self._sessions) >= self._count_max:
                raise ApiError(
                    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                    f"this node has {self._count_max} sessions of lease groups, the most it may have",
                )
            session = self._sessions[key] = LeaseSession()
            return session
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {member} has no session here; open one")
        if epoch == CLOSES:
            del self._sessions[key]
        elif epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the session is at epoch {session.epoch}, not at {epoch}"
            )
        else:
            session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session
