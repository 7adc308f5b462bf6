"""What an answer to Metadata about all topics costs the event loop, without sockets.

    python -m bench.metadata_micro [partitions]

A broker in memory has all partitions, once in one topic and once in topics of one partition. Three nodes are in its
catalog. The times are processor time of the event loop's thread, from the parsed request to the encoded answer: the
first answer after a change of every partition, and answers after that. An answer about many topics is made in slices;
the longest is how long other work on the loop has to wait.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from drmq.broker import Broker, MemoryLogs
from drmq.broker.services.caller import ANONYMOUS, Caller
from drmq.catalog import Topic, TopicCreated
from drmq.kafka import metadata
from drmq.kafka.context import Context
from drmq.model import GroupId, NodeId
from drmq.transport.peers import LeaderNotice, NoNetwork
from drmq.wire import ApiKey, write_response
from drmq.wire.messages.metadata import MetadataRequest

VERSION = 13
NODES = (1, 2, 3)


class Reachable(NoNetwork):
    """A network in which all nodes are up."""

    def is_up(self, node_id: NodeId) -> bool:
        return True


class Answered(NamedTuple):
    """Processor times of one answer in milliseconds, and its size."""

    total: float
    longest_slice: float
    size: int


async def answer(context: Context) -> Answered:
    started = time.thread_time()
    turns = [started]

    async def note_turns() -> None:
        while True:
            turns.append(time.thread_time())
            await asyncio.sleep(0)

    noting = asyncio.ensure_future(note_turns())
    response = metadata.handle(context, MetadataRequest(None))
    if isinstance(response, Awaitable):
        response = await response
    size = len(write_response(ApiKey.METADATA, context.version, 1, response))
    turns.append(time.thread_time())
    noting.cancel()
    longest = max(after - before for before, after in pairwise(turns))
    return Answered((turns[-1] - started) * 1000, longest * 1000, size)


def announce(broker: Broker, topics: list[Topic], term: int) -> None:
    members = tuple(NodeId(node) for node in NODES)
    broker.host.on_notices(
        LeaderNotice(GroupId(topic.topic_id, index), term, NodeId(NODES[index % 2 + 1]), term, members)
        for topic in topics
        for index in range(topic.partition_count)
    )


async def measure(topic_count: int, partition_count: int) -> None:
    broker = Broker(NodeId(1), MemoryLogs())
    await broker.start()
    broker.advertised = ("localhost", 9092)
    await broker.join()
    broker.network = Reachable()
    catalog = broker.metadata.committed_catalog
    topics = []
    for number in range(topic_count):
        replicas = [[NodeId(NODES[(index + at) % 3]) for at in range(3)] for index in range(partition_count)]
        # Only in the catalog: files and elections are not measured.
        catalog.replay(TopicCreated(broker.new_topic_id(), f"topic-{number}", replicas, {}))
        topics.append(catalog.topics[f"topic-{number}"])
    context = Context(broker, None, VERSION, Caller(ANONYMOUS, "bench", "127.0.0.1", "KAFKA"), "METADATA")
    firsts: list[Answered] = []
    laters: list[Answered] = []
    for term in range(1, 8):
        announce(broker, topics, term)
        firsts.append(await answer(context))
        laters += [await answer(context) for _ in range(5)]
    print(f"{topic_count:6d} topics of {partition_count:6d} partitions, {firsts[-1].size:,} bytes")
    for name, found in (("first", firsts), ("later", laters)):
        total, longest = median(each.total for each in found), median(each.longest_slice for each in found)
        print(f"  {name}: {total:6.2f} ms, longest slice {longest:6.2f} ms")
    await broker.stop()


def main() -> None:
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    asyncio.run(measure(1, partitions))
    asyncio.run(measure(partitions, 1))


if __name__ == "__main__":
    main()
