"""The tools that break things do what they say: a known pattern in, its exact effect out.

A fault tool can be wrong itself, and a partition that lets everything through makes every test of partitions pass.
"""

from __future__ import annotations

import socket

import pytest

from support.clocks import try_clock
from support.fault_tools import echo_seconds, echo_server, network_works, strace_works
from support.link_rules import CLIENTS, LinkRule, LinkRules
from support.networks import ProxyNetwork, SwitchNetwork, Unavailable
from support.polling import eventually
from support.power import try_power
from support.small_disk import try_small_disk

KINDS = [SwitchNetwork, ProxyNetwork]


def make(kind: type[SwitchNetwork] | type[ProxyNetwork], nodes: int = 1) -> SwitchNetwork | ProxyNetwork:
    try:
        return kind(nodes)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("kind", KINDS)
def test_links_cut_delay_and_lose_as_told(kind: type[SwitchNetwork] | type[ProxyNetwork]) -> None:
    """Each direction by itself; and all is as before after the heal."""
    network = make(kind)
    try:
        tools = list(network_works(network))
    finally:
        network.close()
    assert len(tools) >= 4
    assert all(tool.works for tool in tools), tools


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_hides_one_node_and_no_other(kind: type[SwitchNetwork] | type[ProxyNetwork]) -> None:
    """The rule is that of one link."""
    network = make(kind, 2)
    try:
        with echo_server(network, 1), echo_server(network, 2):
            network.cut_both(CLIENTS, 1)
            assert echo_seconds(network, 1, 0.4) is None
            assert echo_seconds(network, 2) is not None
            network.heal()
            assert echo_seconds(network, 1) is not None
    finally:
        network.close()


def test_strace_fails_and_delays_calls() -> None:
    """The errors and the slowness of disks come from it."""
    tool = strace_works()
    if "not installed" in tool.seen:
        pytest.skip(tool.seen)
    assert tool.works, tool.seen


def test_power_cuts_take_what_was_not_synced() -> None:
    """And nothing else."""
    tool = try_power()
    if "bytes came back" not in tool.seen:
        pytest.skip(tool.seen)
    assert tool.works, tool.seen


def test_full_disks_are_full() -> None:
    """And have space again when they are told to."""
    tool = try_small_disk()
    if "cannot be mounted" in tool.seen:
        pytest.skip(tool.seen)
    assert tool.works, tool.seen


def test_wall_clocks_jump_alone() -> None:
    """The monotonic clock of the same process goes on as before."""
    tool = try_clock()
    if "no C compiler" in tool.seen:
        pytest.skip(tool.seen)
    assert tool.works, tool.seen


def test_snapshots_stop_where_told() -> None:
    """Bytes on a connection for snapshots pass up to the limit, and the rest when it is lifted."""
    network = ProxyNetwork(1)
    greeting = bytearray(28)
    greeting[19] = 2
    greeting[20:28] = (2).to_bytes(8, "big")
    try:
        with echo_server(network, 1, peers=True):
            network.set_rule([(2, 1)], LinkRule(snapshot_bytes_max=100))
            host, port = network.peer(1).split(":")[1], network.port(1) + 1_000
            with socket.create_connection((host, port), timeout=5) as connection:
                connection.sendall(bytes(greeting) + bytes(972))
                passed = eventually(lambda: network.counts()[0], lambda count: count >= 100)
                assert passed == 100
                network.heal()
                assert eventually(lambda: network.counts()[0], lambda count: count >= 1_000) == 1_000
    finally:
        network.close()


def test_rules_survive_the_way_to_their_process() -> None:
    """What the process carries out is what was asked for."""
    rules = LinkRules({(1, 2): LinkRule(cut=True), (0, 3): LinkRule(delay_ms=5, jitter_ms=1, loss=0.25)})
    assert LinkRules.from_line(rules.to_line()) == rules
    assert rules.get(2, 1) == LinkRule()
