"""The bare client of lease groups as a worker: one member, with one connection to the leader of the partition.

The mode is the number of acknowledgements in a request. Each is listed by itself, unless the mode ends in `run`: then
they are one run of offsets, as DRMQ's own client sends them.
"""

import select

from bench import kafka_metadata
from bench.clients.leasing import POLL_SECONDS, QueueTask, Work, main
from bench.clients.raw_leases import Lane, find_topic_id

TAKE_COUNT = 500


def work(task: QueueTask, work: Work) -> None:
    """Lease and acknowledge until told to stop; what is in flight then is lost."""
    known = kafka_metadata.ask(task.ports[0], task.queue)
    address = f"127.0.0.1:{known.ports[known.partitions[0].leader]}"
    count, _, how = task.mode.partition(" ")
    topic_id = find_topic_id(address, task.queue)
    lane = Lane(address, task.group, topic_id, 0, int(count), TAKE_COUNT, is_one_by_one=how != "run")
    work.ready()
    work.wait_to_go()
    lane.begin()
    done = 0
    while not work.is_stopped:
        if select.select([lane.socket], [], [], POLL_SECONDS)[0]:
            lane.receive()
        # It reads no values: their size is what it is told.
        work.add(lane.accepted - done, (lane.accepted - done) * task.record_size)
        done = lane.accepted
    lane.socket.close()


if __name__ == "__main__":
    main(work)
