"""Which replicas are in sync, as clients are told it, when a node can not be reached.

The election timeout of these clusters is far longer than a test waits: what is seen here does not come from it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drmq.broker import BrokerOptions
from drmq.client import Admin, NewTopic
from drmq.testing import Cluster, cluster
from support.polling import eventually

PATIENT = BrokerOptions(election_timeout_ms=60_000)

FAULTS: dict[str, tuple[Callable[[Cluster, int], None], Callable[[Cluster, int], None]]] = {
    "killed": (Cluster.kill, Cluster.start),
    "paused": (Cluster.pause, Cluster.resume),
    "cut off": (lambda c, node_id: c.partition([node_id]), lambda c, node_id: c.heal()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_follower_that_cannot_be_reached_leaves_and_comes_back(fault: str) -> None:
    break_it, mend_it = FAULTS[fault]
    with cluster(nodes=3, options=PATIENT) as c:
        with Admin(c.bootstrap_servers, timeout_s=30.0) as admin:
            admin.topics.create(NewTopic("orders", 1, 3))
        leader = c.leader("orders")
        away = next(node_id for node_id in c.node_ids if node_id != leader)
        asked = c.node(leader).config
        with Admin(f"127.0.0.1:{asked.port}", timeout_s=30.0) as admin:

            def in_sync() -> set[int]:
                return set(admin.topics.describe("orders").partitions[0].in_sync)

            eventually(in_sync, lambda found: found == {1, 2, 3})
            break_it(c, away)
            eventually(in_sync, lambda found: found == {1, 2, 3} - {away}, what="the one that is away is left out")
            mend_it(c, away)
            eventually(in_sync, lambda found: found == {1, 2, 3}, what="it is counted again")
