"""The two ways in which a session reads a topic, over `drmq.Consumer`: sharing it with a group, and alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from drmq import GroupConsumer, SingleConsumer
from drmq.model import TopicPartition
from drmq.server.cli.options import DEFAULT_CLIENT_ID
from drmq.server.cli.positions import Position, resolve
from drmq.server.cli.record_text import ReadRecord

if TYPE_CHECKING:
    from drmq import LeasedMessage, Message
    from drmq.client import Admin, Bounds
    from drmq.server.cli.options import ClusterChoice


def record_of(message: Message[bytes]) -> ReadRecord:
    """A message of the Python client as the command line prints it."""
    return ReadRecord(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        list(message.headers),
        getattr(message, "attempt", None),
    )


class GroupReader:
    """A member of a lease group. Leases exactly what is asked for, so that others get the rest."""

    def __init__(
        self, cluster: ClusterChoice, group: str, topic: str, start: Literal["earliest", "latest"] | None = None
    ) -> None:
        self._consumer: GroupConsumer[bytes] = GroupConsumer(
            cluster.bootstrap,
            group,
            start=start,
            prefetch=0,
            timeout=cluster.timeout_s,
            client_id=cluster.properties.get("client.id", DEFAULT_CLIENT_ID),
        )
        try:
            self._consumer.subscribe(topic)
        except BaseException:
            self.close()
            raise

    def poll(self, count: int, wait_s: float) -> list[LeasedMessage[bytes]]:
        return self._consumer.poll(count, wait_s)

    def close(self) -> None:
        """Give back what is leased, and leave the group."""
        self._consumer.close()


class SingleReader:
    """A reader with a position of its own in each partition of a topic: after the last message that was shown."""

    def __init__(
        self, cluster: ClusterChoice, admin: Admin, topic: str, group: str | None, position: Position | None
    ) -> None:
        self._admin = admin
        self._topic = topic
        self.positions = self._resolve(position or Position("begin"))
        if position is None and group is not None:
            committed = admin.groups.offsets(group)
            self.positions |= {place: committed[place].offset for place in self.positions if place in committed}
        self._consumer: SingleConsumer[bytes] = SingleConsumer(
            cluster.bootstrap,
            group,
            timeout=cluster.timeout_s,
            client_id=cluster.properties.get("client.id", DEFAULT_CLIENT_ID),
        )
        self._consumer.subscribe(topic, offset=self._by_partition(self.positions))

    def _resolve(self, position: Position) -> dict[TopicPartition, int]:
        partitions = self._admin.topics.describe(self._topic).partitions
        return resolve(self._admin, [TopicPartition(self._topic, each.index) for each in partitions], [position])

    @staticmethod
    def _by_partition(positions: dict[TopicPartition, int]) -> dict[int, int]:
        return {place.partition: offset for place, offset in positions.items()}

    def seek(self, position: Position) -> None:
        """Continue elsewhere; a position in one partition leaves the others where they are."""
        moved = self._resolve(position)
        self._consumer.seek(self._topic, offset=self._by_partition(moved))
        self.positions |= moved

    def poll(self, count: int, wait_s: float) -> list[ReadRecord]:
        return [record_of(message) for message in self._consumer.poll(count, wait_s)]

    def shown(self, record: ReadRecord) -> None:
        """The position is after this record."""
        self.positions[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def rewind(self) -> None:
        """Go back to the position: what was read after it was not shown."""
        self._consumer.seek(self._topic, offset=self._by_partition(self.positions))

    def commit(self, group: str) -> None:
        """Keep the position under the name of a group."""
        self._admin.groups.commit(group, self.positions)

    def bounds(self) -> dict[TopicPartition, Bounds]:
        return dict(self._admin.topics.bounds(self.positions))

    @property
    def position_text(self) -> str:
        """The position for people: `offset 7`, or `0:7 1:3` if there are several partitions."""
        if len(self.positions) == 1:
            return f"offset {next(iter(self.positions.values()))}"
        return " ".join(f"{place.partition}:{offset}" for place, offset in sorted(self.positions.items()))

    @property
    def position_facts(self) -> list[dict[str, int]]:
        return [{"partition": place.partition, "offset": offset} for place, offset in sorted(self.positions.items())]

    def close(self) -> None:
        self._consumer.close()
