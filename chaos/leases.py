"""Lease groups under failures: L1 to L4. The rules are those of `drmq.testing.lease_rules`."""

from __future__ import annotations

from chaos.run import Run
from support.lease_load import PARTITIONS, TOPIC

STATE = "__share_group_state"
SHARDS = 4


def shard_leader_killed(run: Run) -> None:
    """The node that decides about leases dies while many are out, and comes back."""
    for _ in range(3):
        _loaded(run)
        node_id = run.cluster.leader_of(STATE, run.chance.randrange(SHARDS))
        run.kill(node_id)
        run.served()
        _loaded(run)
        run.wait(0, 2)
        run.start(node_id)
        run.whole()


def data_leader_killed(run: Run) -> None:
    """The node that hands out the records dies, and comes back."""
    for _ in range(3):
        _loaded(run)
        node_id = run.cluster.leader_of(TOPIC, run.chance.randrange(PARTITIONS))
        run.kill(node_id)
        run.served()
        _loaded(run)
        run.start(node_id)
        run.whole()


def all_killed(run: Run) -> None:
    """All nodes die at once; what was accepted stays so, and what is out stays with its members."""
    for _ in range(2):
        _loaded(run)
        run.say("kill -9 all")
        run.cluster.kill_all()
        run.start(*run.cluster.ids)
        run.whole()


def shard_leader_paused(run: Run) -> None:
    """The node that decides about leases stands still, is replaced, and goes on as if nothing had happened."""
    for _ in range(2):
        _loaded(run)
        node_id = run.cluster.leader_of(STATE, run.chance.randrange(SHARDS))
        run.pause(node_id)
        run.served()
        _loaded(run)
        run.resume(node_id)
        run.whole()


def shard_leader_isolated(run: Run) -> None:
    """The node that decides about leases loses the other nodes, but not the members."""
    for _ in range(2):
        _loaded(run)
        node_id = run.cluster.leader_of(STATE, run.chance.randrange(SHARDS))
        run.say(f"cut node {node_id} off from the other nodes")
        run.network.isolate(node_id)
        run.served()
        run.wait(1, 4)
        run.heal()
        run.whole()


def power_cut_on_all(run: Run) -> None:
    """The whole cluster loses its power while leases are out."""
    for _ in range(2):
        _loaded(run)
        run.cut_power(*run.cluster.ids)
        run.start(*run.cluster.ids)
        run.whole()


def _loaded(run: Run) -> None:
    assert run.leases is not None
    run.leases.wait_loaded()
