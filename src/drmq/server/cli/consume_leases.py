"""`drmq consume -g GROUP --lease`: prints records as a member of a lease group, and acknowledges what was printed.

However it ends, what was leased and not printed is given back.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal

from drmq.server.cli.endings import OutputWatch, Signals
from drmq.server.cli.options import DEFAULT_CLIENT_ID, ClusterChoice
from drmq.server.cli.record_text import ReadRecord

if TYPE_CHECKING:
    from drmq import LeasedMessage
    from drmq.model import TopicPartition

_POLL_S = 0.2
_POLL_RECORDS = 500
_LEASES_MAX = 10_000


class LeaseReader:
    """A member of a lease group that detects when nothing is left to lease."""

    def __init__(
        self,
        cluster: ClusterChoice,
        topic: str,
        partitions: Collection[TopicPartition],
        group: str,
        start: Literal["earliest", "latest"] | None,
    ) -> None:
        from drmq import GroupConsumer

        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._group = group
        self._moved_at = time.monotonic()
        self.printed = 0
        self._consumer: GroupConsumer[bytes] = GroupConsumer(
            cluster.bootstrap,
            group,
            start=start,
            timeout=cluster.timeout_s,
            client_id=cluster.properties.get("client.id", DEFAULT_CLIENT_ID),
        )

    def run(self, render: Callable[[ReadRecord], bytes], count: int | None, follow: bool, signals: Signals) -> None:
        """Print until `count` records are printed or, unless `follow`, no more can be leased."""
        watch = OutputWatch()
        self._consumer.subscribe(self._topic)
        while count is None or self.printed < count:
            room = _POLL_RECORDS if count is None else min(_POLL_RECORDS, count - self.printed)
            messages = self._consumer.poll(room, _POLL_S)
            watch.check()
            # A signal between printing and acknowledging would let another consumer print the same again.
            with signals.held():
                self._print(messages, render)
            if messages:
                self._moved_at = time.monotonic()
            elif not follow and self._is_at_end():
                return

    def _print(self, messages: Sequence[LeasedMessage[bytes]], render: Callable[[ReadRecord], bytes]) -> None:
        from drmq.server.shell.readers import record_of

        if not messages:
            return
        out = sys.stdout.buffer
        for message in messages:
            out.write(render(record_of(message)))
        # If the reader of a pipe is gone, this raises, and nothing of this is acknowledged.
        out.flush()
        for message in messages:
            message.ack(wait=False)
        self._consumer.flush()
        self.printed += len(messages)

    def _is_at_end(self) -> bool:
        """Whether no record can be leased now. Those that are parked or with other members are not waited for."""
        with self._cluster.admin() as admin:
            state = admin.lease_groups.state(self._group, [self._topic], leases_max=_LEASES_MAX)
        if state.failures:
            raise state.failures[0]
        missing = set(self._partitions).difference(queue.place for queue in state.queues)
        if missing:
            self._wait_for(min(missing))
            return False
        # A high watermark that is not known may hide records.
        return all(
            not queue.returned
            and queue.high_watermark is not None
            and queue.high_watermark <= queue.end_offset
            # What this member has leased is on its way to it.
            and all(lease.member_id != self._consumer.member_id for lease in queue.leases)
            for queue in state.queues
        )

    def _wait_for(self, place: TopicPartition) -> None:
        """The group has not begun with a partition. Raises `DeadlineExceeded` if this takes too long."""
        from drmq.client import DeadlineExceeded
        from drmq.model import ErrorCode

        if time.monotonic() - self._moved_at > self._cluster.timeout_s:
            raise DeadlineExceeded(
                f"Group `{self._group}` did not begin with partition {place.partition} of topic `{self._topic}` within "
                f"{self._cluster.timeout_s:g} s (--timeout)",
                code=ErrorCode.REQUEST_TIMED_OUT,
                advice="Its leader may be missing, or the member that it is assigned to does not work. `drmq status` "
                f"and `drmq group members {self._group}` show more.",
            )

    def close(self) -> None:
        """Give back what was not printed, and leave the group. Raises `ClientError` if that is not possible."""
        self._consumer.close()
