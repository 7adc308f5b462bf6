"""Processes that die, also right before a step that makes something durable, restart or pause: F1 to F4, F12."""

from __future__ import annotations

import time

from chaos.run import Run
from support.checked import Place
from support.cluster_load import SMALL
from support.polling import eventually

OFFSETS = "__consumer_offsets"
STEPS = "fsync,fdatasync,rename,renameat,renameat2"
"""The system calls that make something durable."""
FIRST_STEPS = 12
"""How many steps are tried one by one, since most are different while a node starts."""
LATER_STEPS = 6
"""How many later steps, under load, are tried; the seed chooses them."""
LATER_STEP_MAX = 200
_STEP_WITHIN_S = 40.0


def leader_killed(run: Run) -> None:
    """The leader of a partition dies and comes back after a while, three times."""
    for _ in range(3):
        place = run.place()
        leader = run.leader(place)
        with run.gap(place):
            run.kill(leader)
            run.served()
        run.wait(0, 3)
        run.start(leader)
        run.whole()


def follower_killed(run: Run) -> None:
    """A follower dies and restarts."""
    for _ in range(2):
        follower = run.follower()
        with run.gap(Place(SMALL, 0)):
            run.kill(follower)
            run.served()
        run.wait(0, 3)
        run.start(follower)
        run.whole()


def coordinator_killed(run: Run) -> None:
    """The coordinator of consumer groups dies."""
    for _ in range(2):
        node_id = run.cluster.leader_of(OFFSETS, run.chance.randrange(4))
        run.kill(node_id)
        run.served()
        run.start(node_id)
        run.whole()


def controller_killed(run: Run) -> None:
    """The controller dies."""
    for _ in range(2):
        node_id = run.cluster.controller()
        run.kill(node_id)
        run.served()
        run.wait(0, 2)
        run.start(node_id)
        run.whole()


def all_killed(run: Run) -> None:
    """All nodes die at once and come back one by one."""
    for _ in range(2):
        run.say("kill -9 all")
        run.cluster.kill_all()
        order = run.cluster.ids
        run.chance.shuffle(order)
        for node_id in order:
            run.start(node_id)
            run.wait(0, 1)
        run.whole()


def majority_killed(run: Run) -> None:
    """More than half of the nodes die: nothing is acknowledged until one of them is back."""
    count = len(run.cluster.ids) // 2 + 1
    victims = run.chance.sample(run.cluster.ids, count)
    run.kill(*victims)
    run.wait(1, 3)
    run.start(victims[0])
    run.served()
    run.start(*victims[1:])
    run.whole()


def killed_while_starting(run: Run) -> None:
    """A node dies again and again while it starts."""
    node_id = run.follower()
    run.kill(node_id)
    for _ in range(4):
        run.start(node_id)
        run.wait(0.1, 1.5)
        run.kill(node_id)
    run.start(node_id)
    run.whole()


def killed_at_a_step(run: Run) -> None:
    """A node dies right before its first, second, third sync or rename, and so on, and then before later ones."""
    steps = [*range(1, FIRST_STEPS + 1), *(run.chance.randrange(20, LATER_STEP_MAX) for _ in range(LATER_STEPS))]
    node_id = run.leader()
    run.kill(node_id)
    deaths = 0
    for number, step in enumerate(steps):
        node = run.cluster[node_id]
        # Counted by thread, so this is the step of whichever thread gets there first.
        trace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={STEPS}"]
        node.wrapper = [*trace, "-e", f"inject={STEPS}:signal=KILL:when={step}"]
        run.say(f"node {node_id} dies before step {step}")
        node.start()
        try:
            eventually(node.exit_status, lambda status: status is not None, timeout_s=_STEP_WITHIN_S, what="its death")
            deaths += 1
        except AssertionError:
            # A step that is not reached kills no process, and proves nothing.
            run.say(f"step {step} was not reached")
            run.kill(node_id)
        node.wrapper = []
        if number % 6 == 5:
            run.start(node_id)
            run.whole()
            run.served()
            if number + 1 < len(steps):
                node_id = run.leader() if run.chance.random() < 0.5 else run.follower()
                run.kill(node_id)
    assert deaths >= FIRST_STEPS, f"only {deaths} of {len(steps)} steps were reached"
    if not run.cluster[node_id].running:
        run.start(node_id)
    run.whole()


def rolling_restart(run: Run) -> None:
    """Every node is stopped cleanly and restarted; no client may receive an error."""
    for node_id in run.cluster.ids:
        run.say(f"stop {node_id} cleanly")
        with run.gap():
            assert run.cluster[node_id].terminate() == 0
        run.start(node_id)
        run.whole()
    assert not run.load.client_problems(), run.load.client_problems()


def restarted_all_the_time(run: Run) -> None:
    """Every two seconds one node is stopped or killed, and started at once."""
    for _ in range(8):
        node_id = run.chance.choice(run.cluster.ids)
        if run.chance.random() < 0.5:
            run.kill(node_id)
        else:
            run.say(f"stop {node_id} cleanly")
            run.cluster[node_id].terminate()
        run.start(node_id)
        run.cluster[node_id].wait_ready()
        time.sleep(2)
    run.whole()


def leader_paused(run: Run) -> None:
    """The leader is paused long enough to be replaced, and continues as if nothing had happened."""
    for _ in range(2):
        place = run.place()
        leader = run.leader(place)
        with run.gap(place):
            run.pause(leader)
            run.served()
        run.wait(0, 4)
        run.resume(leader)
        run.whole()


def leader_paused_briefly(run: Run) -> None:
    """Pauses around the election timeout: sometimes it is replaced, sometimes not."""
    for _ in range(5):
        leader = run.leader(run.place())
        run.pause(leader)
        run.wait(0.3, 2.5)
        run.resume(leader)
        run.wait(0.2, 1)
    run.whole()


def follower_paused(run: Run) -> None:
    """A follower is paused, and catches up."""
    follower = run.follower()
    run.pause(follower)
    run.served()
    run.wait(2, 8)
    run.resume(follower)
    run.whole()


def swapped_majorities(run: Run) -> None:
    """Five nodes: two are paused, a third dies and restarts; then these two are resumed and the last two are paused.

    The majority before and the one after share only the node that died: what it has forgotten is lost.
    """
    one, two, three, four, five = run.chance.sample(run.cluster.ids, 5)
    run.pause(one, two)
    run.served()
    run.kill(three)
    run.start(three)
    run.resume(one, two)
    run.pause(four, five)
    run.wait(0, 1)
    run.served()
    run.resume(four, five)
    run.whole()
