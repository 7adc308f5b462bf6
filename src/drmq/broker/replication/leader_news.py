"""The leaders of all partitions of the cluster, as their nodes announce them.

An announcement is a hint with a term and a version in it, so an older one never replaces a newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from drmq.model import GroupId, NodeId, TopicId
from drmq.transport.peers import LeaderNotice


class LeaderNews:
    """What this node was told last. An event costs as much as it changes, however many partitions there are.

    `on_first_leader` is called when there was no known leader before.
    """

    def __init__(self, on_first_leader: Callable[[GroupId], None] = lambda group: None) -> None:
        self._on_first_leader = on_first_leader
        self.leaders: dict[GroupId, LeaderNotice] = {}
        self._by_node: dict[NodeId, dict[GroupId, None]] = {}
        self._by_topic: dict[TopicId, dict[GroupId, None]] = {}
        self._waiters: dict[asyncio.Future[None], None] = {}

    def note(self, notices: Iterable[LeaderNotice]) -> None:
        is_news = False
        for notice in notices:
            group, known = notice.group, self.leaders.get(notice.group)
            if known is None:
                self._by_topic.setdefault(group.topic_id, {})[group] = None
            elif (notice.term, notice.version) <= (known.term, known.version):
                continue
            elif known.leader != notice.leader:
                self._by_node[known.leader].pop(group, None)
            self.leaders[group] = notice
            self._by_node.setdefault(notice.leader, {})[group] = None
            if known is None:
                self._on_first_leader(group)
            is_news = True
        if is_news:
            waiting, self._waiters = self._waiters, {}
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def forget_node(self, node_id: NodeId) -> None:
        """Forget what a node leads. When it returns, it announces again what it leads, which may be less."""
        for group in self._by_node.pop(node_id, {}):
            self.leaders.pop(group, None)
            self._by_topic[group.topic_id].pop(group, None)

    def forget_topics(self, topics: Iterable[TopicId]) -> None:
        """Forget the leaders of deleted topics."""
        for topic_id in topics:
            for group in self._by_topic.pop(topic_id, {}):
                notice = self.leaders.pop(group, None)
                if notice is not None:
                    self._by_node[notice.leader].pop(group, None)

    def call_at_next(self, timeout_s: float, function: Callable[[], object]) -> None:
        """Call a function once at the next announcement of any leader, or when the time is up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiters[future] = None

        def give_up() -> None:
            if self._waiters.pop(future, future) is None:
                future.set_result(None)

        timer = loop.call_later(timeout_s, give_up)

        def on_done(done: asyncio.Future[None]) -> None:
            timer.cancel()
            if not done.cancelled():
                function()

        future.add_done_callback(on_done)
