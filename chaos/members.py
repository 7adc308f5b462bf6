"""Nodes that join and leave, and partitions that move, while other things go wrong: F14."""

from __future__ import annotations

from chaos.run import Run
from support.checked import Place


def moved_while_nodes_die(run: Run) -> None:
    """A node joins, partitions move to it and back while leaders and newcomers die, and it leaves."""
    newcomer = join(run)
    old = [node_id for node_id in run.cluster.ids if node_id != newcomer]
    for place in run.load.places:
        leaving = run.chance.choice(old)
        run.move(place, [newcomer, *(node_id for node_id in old if node_id != leaving)])
        run.wait(0, 0.5)
        victim = run.chance.choice([run.leader(place), newcomer])
        run.kill(victim)
        run.wait(0, 2)
        run.start(victim)
        run.cluster.wait_serving()
        settle(run, place, [newcomer, *(node_id for node_id in old if node_id != leaving)])
        run.served()
    for place in run.load.places:
        run.move(place, old)
        run.wait(0, 0.5)
        leader = run.leader(place)
        run.kill(leader)
        run.start(leader)
        run.cluster.wait_serving()
        settle(run, place, old)
    leave(run, newcomer)


def moved_while_cut_off(run: Run) -> None:
    """A node joins, and partitions move to it and back while leaders lose the other nodes; then it leaves."""
    newcomer = join(run)
    old = [node_id for node_id in run.cluster.ids if node_id != newcomer]
    for place in run.load.places:
        kept = run.chance.sample(old, len(old) - 1)
        for target in ([newcomer, *kept], old):
            leader = run.leader(place)
            run.move(place, target)
            run.wait(0, 0.3)
            run.say(f"cut node {leader} off from the other nodes")
            run.network.isolate(leader)
            run.served()
            run.wait(0, 2)
            run.heal()
            settle(run, place, target)
    leave(run, newcomer)


def controllers_replaced(run: Run) -> None:
    """A node joins and the controller leaves for good; then the next one dies while another one joins."""
    join(run)
    leave(run, run.cluster.controller())
    run.say("another node joins, and the controller dies")
    controller = run.cluster.controller()
    run.kill(controller)
    run.start(controller)
    join(run)
    run.whole()


def join(run: Run) -> int:
    node_id = run.cluster.join()
    run.say(f"node {node_id} has joined")
    return node_id


def leave(run: Run, node_id: int) -> None:
    """Remove a node cleanly; its replicas move to the others."""
    run.whole()
    run.say(f"node {node_id} leaves")
    run.cluster.remove(node_id)
    run.whole()


def settle(run: Run, place: Place, target: list[int]) -> None:
    """Until the partition is where it should be. A move to a node that is down may be given up: it is repeated."""
    run.whole()
    run.moved()
    with run.cluster.admin() as admin:
        found = admin.topics.describe(place.topic).partitions[place.partition].replicas
    if set(found) != set(target):
        run.move(place, target)
        run.moved()
    run.whole()
