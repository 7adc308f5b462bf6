"""The list of all failures.

Names begin with the number of the scenario in the safety plan (F: processes and network, K: disks), or with L: lease
groups. What is in the plan and not possible with this broker is in `ABSENT`, with the reason: reported as not run, and
never as passed. What is `known` to fail runs, and is reported as such.
"""

from __future__ import annotations

import time

from chaos import alone, damage, disks, leases, links, members, processes, transfers, wall_clocks
from chaos.run import Run, Scenario

SCENARIOS = [
    Scenario("F1-leader-killed", processes.leader_killed),
    Scenario("F1-follower-killed", processes.follower_killed),
    Scenario("F1-coordinator-killed", processes.coordinator_killed),
    Scenario("F1-controller-killed", processes.controller_killed),
    Scenario("F1-all-killed", processes.all_killed, nodes=1),
    Scenario("F1-majority-killed", processes.majority_killed),
    Scenario("F1-killed-while-starting", processes.killed_while_starting, nodes=1),
    Scenario("F2-killed-at-a-step", processes.killed_at_a_step, "strace", nodes=1),
    Scenario("F3-rolling-restart", processes.rolling_restart, nodes=1),
    Scenario("F3-restarted-all-the-time", processes.restarted_all_the_time, nodes=1),
    Scenario("F4-leader-paused", processes.leader_paused),
    Scenario("F4-leader-paused-briefly", processes.leader_paused_briefly, nodes=1),
    Scenario("F4-follower-paused", processes.follower_paused),
    Scenario("F4-paused-alone", alone.paused, nodes=1, is_exact=True),
    Scenario("F5-leader-isolated", links.leader_isolated, "cut"),
    Scenario("F5-leader-of-all-isolated", links.leader_of_all_isolated, "cut"),
    Scenario("F5-leader-isolated-briefly", links.leader_isolated_briefly, "cut"),
    Scenario("F5-leader-vanished", links.leader_vanished, "cut"),
    Scenario("F5-follower-isolated", links.follower_isolated, "cut"),
    Scenario("F5-all-apart", links.all_apart, "cut"),
    Scenario("F5-split-three-two", links.split_three_two, "cut", 5),
    Scenario("F5-ring", links.ring, "cut", 5, is_exact=True),
    Scenario("F6-deaf-leader", links.deaf_leader, "cut"),
    Scenario("F6-mute-leader", links.mute_leader, "cut"),
    Scenario("F6-deaf-follower", links.deaf_follower, "cut"),
    Scenario("F7-clients-cut-off", links.clients_cut_off, "cut", nodes=1),
    Scenario("F8-delayed", links.delayed, "delay"),
    Scenario("F8-lossy", links.lossy, "loss", nodes=1),
    Scenario("F9-flapping", links.flapping, "cut"),
    Scenario("F10-slow-link", links.slow_link, "rate"),
    Scenario("F11-snapshot-cut", transfers.snapshot_cut, "snapshot", settings=transfers.SMALL_PARTS),
    Scenario("F11-second-snapshot", transfers.second_snapshot, "snapshot", settings=transfers.SMALL_PARTS),
    Scenario("F12-swapped-majorities", processes.swapped_majorities, "", 5, is_exact=True),
    Scenario("F12-swapped-majorities-and-power", disks.swapped_majorities_and_power, "power", 5, is_exact=True),
    Scenario("F13-held-requests", links.held_requests, "hold", nodes=1),
    Scenario("F14-moved-while-nodes-die", members.moved_while_nodes_die, spare_nodes=1),
    Scenario("F14-moved-while-cut-off", members.moved_while_cut_off, "cut", spare_nodes=1),
    Scenario("F14-controllers-replaced", members.controllers_replaced, spare_nodes=2),
    Scenario("F15-clock-of-one-node", wall_clocks.clock_of_one_node, "clock"),
    Scenario("F15-clocks-of-all-nodes", wall_clocks.clocks_of_all_nodes, "clock", nodes=1),
    Scenario("F15-started-with-a-wrong-clock", wall_clocks.started_with_a_wrong_clock, "clock", nodes=1),
    Scenario("K1-power-cut-on-one", disks.power_cut_on_one, "power"),
    Scenario("K1-power-cut-on-all", disks.power_cut_on_all, "power", nodes=1),
    Scenario("K3-lying-disk", disks.lying_disk, "power"),
    Scenario("K4-failed-sync", disks.failed_sync, "strace"),
    Scenario("K4-failed-sync-alone", alone.failed_sync, "strace", 1, is_exact=True),
    Scenario("K5-disk-full-on-follower", disks.disk_full_on_follower, "small-disk"),
    Scenario("K5-disk-full-on-leader", disks.disk_full_on_leader, "small-disk"),
    Scenario("K5-disk-full-on-majority", disks.disk_full_on_majority, "small-disk"),
    Scenario("K5-started-on-a-full-disk", disks.started_on_a_full_disk, "small-disk"),
    Scenario("K5-disk-full-alone", alone.disk_full, "small-disk", 1, is_exact=True),
    Scenario("K6-slow-disk", disks.slow_disk, "strace", nodes=1),
    Scenario("K7-records-of-a-stopped-node", damage.records_of_a_stopped_node),
    Scenario("K7-records-of-a-running-node", damage.records_of_a_running_node),
    Scenario("K7-records-alone", alone.records_damaged, nodes=1, is_exact=True),
    Scenario("K8-hints-damaged", damage.hints_damaged, nodes=1),
    Scenario("K9-promises-damaged", damage.promises_damaged),
    Scenario("K9-promises-damaged-alone", alone.promises_damaged, nodes=1, is_exact=True),
    Scenario("K9-snapshots-damaged", damage.snapshots_damaged, nodes=1),
    Scenario("K9-old-disk", damage.old_disk),
    Scenario("K10-wiped", disks.wiped),
    Scenario("L1-shard-leader-killed", leases.shard_leader_killed, leases=True),
    Scenario("L1-data-leader-killed", leases.data_leader_killed, leases=True),
    Scenario("L1-all-killed", leases.all_killed, nodes=1, leases=True),
    Scenario("L2-shard-leader-paused", leases.shard_leader_paused, leases=True),
    Scenario("L3-shard-leader-isolated", leases.shard_leader_isolated, "cut", leases=True),
    Scenario("L4-power-cut-on-all", leases.power_cut_on_all, "power", nodes=1, leases=True),
]

ABSENT = [
    ("F13-held-end-of-transaction", "this broker has no transactions yet: EndTxn is not among its APIs"),
]

_REPEATABLE = {"cut", "delay", "rate", "loss"}
"""What scenarios of a mixture may need: those with other needs make topics, or are set up before the cluster starts."""


def mixture(run: Run, until: float) -> None:
    """One scenario after the other on the same cluster, as the seed has it."""
    fitting = [
        scenario
        for scenario in SCENARIOS
        if scenario.fits(len(run.cluster.ids))
        and not scenario.spare_nodes
        and not scenario.known
        and not scenario.leases
        and set(scenario.needs.split()) <= run.network.features & _REPEATABLE
    ]
    while time.monotonic() < until:
        scenario = run.chance.choice(fitting)
        run.say(f"mixture: {scenario.name}")
        scenario.act(run)
