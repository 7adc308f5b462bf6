"""Requests of members of a lease group to a broker without sockets, and what their answers say."""

from __future__ import annotations

from typing import Any

from drmq.leases import QueueKey
from drmq.leases.queue import Queue
from drmq.model import TopicId
from drmq.model.names import SHARE_GROUP_STATE
from drmq.records import iter_batches, iter_records
from drmq.wire.messages.lease_fetch import (
    LeaseFetchRequest,
    LeaseFetchRequestPartition,
    LeaseFetchRequestTopic,
    LeaseSettlement,
)
from support.broker_harness import Harness

GROUP, MEMBER, TOPIC = "billing", "m1", "orders"
ACCEPT, RELEASE, REJECT, RENEW, GIVE_BACK = 1, 2, 3, 4, 5


class Leases:
    """A topic, and requests of members about its partitions."""

    def __init__(self, harness: Harness, partitions: int = 1) -> None:
        self.harness = harness
        harness.run(harness.broker.services.topic_creation.create_internal(SHARE_GROUP_STATE))
        self.topic_id = harness.create_topic(TOPIC, partitions).topic_id
        harness.broker.services.leases.starts_at = lambda group, partition, caller: 0

    def request(
        self,
        *settlements: LeaseSettlement,
        member: str = MEMBER,
        count: int = 0,
        wait_ms: int = 0,
        partitions: tuple[int, ...] = (0,),
        takes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> LeaseFetchRequest:
        parts = [LeaseFetchRequestPartition(index, takes, list(settlements)) for index in partitions]
        return LeaseFetchRequest(
            GROUP, member, wait_ms, max_bytes, count, [LeaseFetchRequestTopic(self.topic_id, parts)]
        )

    def ask(self, *settlements: LeaseSettlement, **options: Any) -> Any:
        """The answer for the first partition of the request."""
        answer = self.harness.ask(self.request(*settlements, **options))
        assert answer.error_code == 0, answer.error_message
        return answer.topics[0].partitions[0]

    def take(self, count: int, **options: Any) -> Any:
        taken = self.ask(count=count, **options)
        assert taken.error_code == 0, taken.error_message
        return taken

    def settle(self, outcome: int, first: int, last: int | None = None, **options: Any) -> list[tuple[int, int, int]]:
        """Settle a run of offsets; the runs that were refused."""
        fields = {name: options.pop(name) for name in ("delay_ms", "token") if name in options}
        settlement = LeaseSettlement(first, first if last is None else last, outcome, **fields)
        answer = self.ask(settlement, **options)
        assert answer.settle_error_code == 0, answer.settle_error_message
        return [(each.first_offset, each.last_offset, each.reason) for each in answer.refusals]

    def queue(self, partition: int = 0) -> Queue:
        leases = self.harness.broker.leases
        key = QueueKey(GROUP, TopicId(self.topic_id), partition)
        return leases.shards[leases.index_of(key)].machine.queues[key]


def offsets(taken: Any) -> list[int]:
    return [n for each in taken.deliveries for n in range(each.first_offset, each.last_offset + 1)]


def values(taken: Any) -> list[bytes | None]:
    """The values of the records that were leased; the batches may have others."""
    wanted = set(offsets(taken))
    data = bytes(taken.records)
    found = []
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        found += [one.value for one in iter_records(batch, decompressed_size_max=1 << 20) if one.offset in wanted]
    return found
