"""What an answer to Metadata about all topics costs the event loop, without sockets.

    python -m bench.metadata_micro [partitions]

A broker in memory has all partitions, once in one topic and once in topics of one partition. Three nodes are in its
catalog. The times are processor time of the event loop's thread, from the parsed request to the encoded answer: the
first answer after a change of every partition, and answers after that.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable
from statistics import median

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


async def answer(context: Context) -> tuple[float, int]:
    """The processor time of one answer in milliseconds, and its size."""
    started = time.thread_time()
    response = metadata.handle(context, MetadataRequest(None))
    if isinstance(response, Awaitable):
        response = await response
    size = len(write_response(ApiKey.METADATA, context.version, 1, response))
    return (time.thread_time() - started) * 1000, size


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
    firsts, laters, size = [], [], 0
    for term in range(1, 8):
        announce(broker, topics, term)
        taken, size = await answer(context)
        firsts.append(taken)
        for _ in range(5):
            laters.append((await answer(context))[0])
    print(
        f"{topic_count:6d} topics of {partition_count:6d} partitions: first {median(firsts):6.1f} ms, "
        f"later {median(laters):6.2f} ms, {size:,} bytes"
    )
    await broker.stop()


def main() -> None:
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    asyncio.run(measure(1, partitions))
    asyncio.run(measure(partitions, 1))


if __name__ == "__main__":
    main()
