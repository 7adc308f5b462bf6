"""DRMQ's own client: takes leases and acknowledges each message, without waiting for each."""

from bench.clients.leasing import POLL_SECONDS, QueueTask, Work, main
from drmq import Consumer

POLL_COUNT_MAX = 500
PARK_SECONDS = 3600
PARK_TIMES = 997
"""Neighbours wait for different times: a broker could keep those that wait for the same time as one run."""


def work(task: QueueTask, work: Work) -> None:
    """Poll and acknowledge until told to stop; in mode `park`, put each message off by an hour or more."""
    is_parking = task.mode == "park"
    with Consumer(task.bootstrap_servers, task.group) as consumer:
        consumer.subscribe(task.queue)
        while not work.is_stopped:
            batch = consumer.poll(POLL_COUNT_MAX, timeout=POLL_SECONDS)
            size = 0
            for message in batch:
                value = message.value
                size += len(value)
                if task.is_timed:
                    work.took(value)
                if is_parking:
                    message.nack(delay=PARK_SECONDS + message.offset % PARK_TIMES, wait=False)
                else:
                    message.ack(wait=False)
            if batch:
                work.add(len(batch), size)
                work.ready()
            work.hold_back()
        consumer.flush()


if __name__ == "__main__":
    main(work)
