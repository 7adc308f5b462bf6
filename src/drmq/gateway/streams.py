"""What pages can watch: overviews that all of them share, and the tails of topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from drmq.client import Admin
from drmq.gateway.group_types import GroupRow
from drmq.gateway.problems import ProblemError
from drmq.gateway.raft_groups import list_groups
from drmq.gateway.shared import Shared
from drmq.gateway.tail import Tail
from drmq.gateway.types import Page, RaftGroup, RecordView, TopicView

if TYPE_CHECKING:
    from drmq.gateway.gateway import Gateway

T = TypeVar("T")

TAIL: Final = "tail:"
NAMES: Final = ("overview", "topics", "groups", "raft", f"{TAIL}TOPIC")
TAILS_MAX: Final = 32
"""Topics that are watched at the same time."""
RAFT_LOOK_S: Final = 2.0
RAFT_MAX: Final = 5_000


class TailData(Struct):
    """The data of a stream `tail:TOPIC`: records that arrived, the oldest first."""

    items: list[RecordView]


class Streams:
    """Owned by the gateway. Lives on the event loop."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._raft: Shared[Page[RaftGroup]] = Shared(lambda: gateway.admins.run(_raft), RAFT_LOOK_S)
        self._tails: dict[str, Tail] = {}
        self._pages: dict[str, tuple[Any, Page[Any]]] = {}
        """By stream: the last look at it, and the page that was made of it."""
        self._encoded: dict[str, tuple[Any, msgspec.Raw]] = {}
        """By stream: what was encoded last, and how. Pages that watch the same get the same bytes."""

    async def close(self) -> None:
        await self._raft.close()

    def snapshot_of(self, stream: str) -> Callable[[], Awaitable[Any]] | None:
        """The function that finds the data of a stream; None if there is no such stream of snapshots."""
        found: dict[str, Callable[[], Awaitable[Any]]] = {
            "overview": self._gateway.overview,
            "topics": self._topics,
            "groups": self._groups,
            "raft": self._raft.get,
        }
        return found.get(stream)

    def tail(self, stream: str) -> Tail:
        """The tail of a topic. Raises `ProblemError` if there are too many."""
        topic = stream.removeprefix(TAIL)
        self._tails = {name: tail for name, tail in self._tails.items() if not tail.is_idle or name == topic}
        if topic not in self._tails:
            if len(self._tails) >= TAILS_MAX:
                raise ProblemError(503, f"{TAILS_MAX} topics are watched through this gateway, the most it can")
            self._tails[topic] = Tail(self._gateway.admins, topic)
        return self._tails[topic]

    def encode(self, stream: str, data: Any) -> msgspec.Raw:
        known = self._encoded.get(stream)
        if known is None or known[0] is not data:
            known = self._encoded[stream] = data, msgspec.Raw(msgspec.json.encode(data))
        return known[1]

    async def _topics(self) -> Page[TopicView]:
        return self._page("topics", await self._gateway.topics.get(), lambda now: now.topics)

    async def _groups(self) -> Page[GroupRow]:
        return self._page("groups", await self._gateway.groups.get(), lambda now: now.rows)

    def _page(self, name: str, now: T, rows: Callable[[T], list[Any]]) -> Page[Any]:
        """One value for each look, so that a socket can tell whether it has sent it already."""
        known = self._pages.get(name)
        if known is None or known[0] is not now:
            known = self._pages[name] = now, Page(rows(now))
        return known[1]


def _raft(admin: Admin) -> Page[RaftGroup]:
    return list_groups(admin, None, 0, RAFT_MAX)
