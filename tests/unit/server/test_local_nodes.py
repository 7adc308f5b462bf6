"""What a local cluster is to look like, before anything is started."""

import socket
from pathlib import Path

import pytest

from drmq.model.address import Address
from drmq.server.config import load
from drmq.server.local_nodes import (
    LocalError,
    LocalNode,
    Missing,
    missing_at,
    plan_nodes,
    server_arguments,
    trouble_at,
)
from drmq.wire import ApiKey
from drmq.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from support.fake_broker import broker

from .cli.scripted_cluster import scripted_cluster

HOST = "127.0.0.1"
DIRECTORY = Path("/cluster")


def addresses(nodes: dict[int, LocalNode]) -> dict[int, tuple[int, int | None]]:
    return {node_id: (node.kafka.port, node.peer_port) for node_id, node in nodes.items()}


def test_one_node_is_alone() -> None:
    """No port for peers, and the port of old."""
    nodes = plan_nodes(DIRECTORY, {}, [1], HOST, None)
    assert nodes == {1: LocalNode(1, None, Address(HOST, 9092), DIRECTORY / "node-1" / "data")}


def test_new_cluster_has_consecutive_ports() -> None:
    """P, P + 1, P + 2, and their peers' ports a thousand higher; all are founders."""
    nodes = plan_nodes(DIRECTORY, {}, [1, 2, 3], HOST, 5000)
    assert addresses(nodes) == {1: (5000, 6000), 2: (5001, 6001), 3: (5002, 6002)}
    assert all(node.founder for node in nodes.values())
    assert [node.data_dir.parent.name for node in nodes.values()] == ["node-1", "node-2", "node-3"]


def test_larger_number_adds_nodes_that_join() -> None:
    """Those that are there stay as they are; the new ones take the next ports and are no founders."""
    known = plan_nodes(DIRECTORY, {}, [1, 2, 3], HOST, 5000)
    nodes = plan_nodes(DIRECTORY, known, [1, 2, 3, 4, 5], HOST, None)
    assert {node_id: nodes[node_id] for node_id in known} == known
    assert addresses(nodes)[5] == (5004, 6004)
    assert [node.founder for node in nodes.values()] == [True, True, True, False, False]


def test_node_that_was_alone_opens_to_others() -> None:
    """It keeps its clients' port, and gets one for peers."""
    known = plan_nodes(DIRECTORY, {}, [1], HOST, 5000)
    nodes = plan_nodes(DIRECTORY, known, [1, 2], HOST, None)
    assert addresses(nodes) == {1: (5000, 6000), 2: (5001, 6001)}
    assert [node.founder for node in nodes.values()] == [True, False]
    assert addresses(plan_nodes(DIRECTORY, known, [1], HOST, None)) == {1: (5000, None)}


def test_smaller_number_leaves_the_others_out() -> None:
    """Nodes above it are not wanted, and not forgotten."""
    known = plan_nodes(DIRECTORY, {}, [1, 2, 3], HOST, 5000)
    assert list(plan_nodes(DIRECTORY, known, [1, 2], HOST, None)) == [1, 2]
    assert plan_nodes(DIRECTORY, known, [1], HOST, None)[1].peer_port == 6000


def test_free_ports_are_free_and_in_a_row() -> None:
    """Of clients and of peers."""
    nodes = plan_nodes(DIRECTORY, {}, [1, 2, 3], HOST, 0)
    first = nodes[1].kafka.port
    assert addresses(nodes) == {number: (first + number - 1, first + number + 999) for number in (1, 2, 3)}
    for node in nodes.values():
        for address in node.listeners():
            socket.create_server(address).close()


def test_free_ports_stay_free_while_a_node_is_down() -> None:
    """The system gives none of them to a connection, so a node that was killed can listen again."""
    handed_out = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first_handed_out = int(handed_out.read_text().split()[0]) if handed_out.exists() else 32_768
    nodes = plan_nodes(DIRECTORY, {}, [1, 2, 3], HOST, 0)
    assert all(address.port < first_handed_out for node in nodes.values() for address in node.listeners())


def test_a_new_node_passes_over_ports_that_are_taken() -> None:
    """Its own and its peers' one; nodes that are down keep theirs."""
    known = plan_nodes(DIRECTORY, {}, [1, 2], HOST, 0)
    first = known[1].kafka.port
    with socket.create_server((HOST, first + 2)), socket.create_server((HOST, first + 1003)):
        nodes = plan_nodes(DIRECTORY, {1: known[1]}, [1, 2, 3], HOST, None)
    assert addresses(nodes)[2] == (first + 1, first + 1001)
    assert addresses(nodes)[3] == (first + 4, first + 1004)


def test_no_room_for_peers() -> None:
    """A port so high that there is none a thousand higher."""
    with pytest.raises(LocalError, match="Choose a lower one with --port"):
        plan_nodes(DIRECTORY, {}, [1, 2], HOST, 65_000)


def test_arguments_are_understood_by_the_server() -> None:
    """Founders know each other; who joins knows the founders, and nobody knows those who join."""
    known = plan_nodes(DIRECTORY, {}, [1, 2, 3], HOST, 5000)
    nodes = plan_nodes(DIRECTORY, known, [1, 2, 3, 4], HOST, None)
    for node_id, peers in {1: {2, 3}, 2: {1, 3}, 4: {1, 2, 3}}.items():
        words = server_arguments(nodes[node_id], nodes.values())
        flags = {
            flag.removeprefix("--").replace("-", "_"): value for flag, value in zip(*[iter(words)] * 2, strict=True)
        }
        config = load(flags, {}, None).config
        assert (config.node_id, config.port) == (node_id, 4999 + node_id)
        assert config.cluster.peer_port == 5999 + node_id
        assert config.cluster.peers.keys() == peers
        assert all(peer.peer_port == peer.port + 1000 for peer in config.cluster.peers.values())


def test_arguments_of_a_node_alone() -> None:
    """Nothing about peers; a configuration file is passed on."""
    (node,) = plan_nodes(DIRECTORY, {}, [1], HOST, 5000).values()
    words = server_arguments(node, [node])
    assert words == ["--node-id", "1", "--host", HOST, "--port", "5000", "--data-dir", "/cluster/node-1/data"]


def test_node_serves_when_it_sees_everyone() -> None:
    """What is missing is said in words: no answer, unseen nodes, no controller."""
    with broker() as fake:
        node = LocalNode(1, None, fake.address, DIRECTORY, 1)

        def answer(brokers: list[int], controller: int) -> MetadataResponse:
            found = [MetadataResponseBroker(node_id=node_id, host=HOST, port=1) for node_id in brokers]
            return MetadataResponse(brokers=found, controller_id=controller)

        fake.answers[ApiKey.METADATA] = lambda request: answer([1], 1)
        assert missing_at(node, {1, 2, 3}) == Missing("does not know nodes 2, 3", 2)
        fake.answers[ApiKey.METADATA] = lambda request: answer([1, 2], 1)
        assert missing_at(node, {1, 2, 3}) == Missing("does not know node 3", 1)
        fake.answers[ApiKey.METADATA] = lambda request: answer([1, 2, 3], -1)
        assert missing_at(node, {1, 2, 3}) == Missing("knows no controller", 0)
        fake.answers[ApiKey.METADATA] = lambda request: answer([1, 2, 3, 4], 2)
        assert missing_at(node, {1, 2, 3}) is None
        assert missing_at(node, set()) is None
    assert missing_at(node, {1, 2, 3}) == Missing(f"does not answer at {node.kafka}", 3)
    assert missing_at(node, set()) is not None


def test_what_is_still_wrong_is_said_in_words() -> None:
    """Of what the nodes that run can mend: leaders, and replicas in sync. That another one is away is no news here."""
    with scripted_cluster(3) as cluster:
        cluster.add("orders", [1, 2, 3], [2, 3, 1])
        node = LocalNode(1, None, cluster.fakes[1].address, DIRECTORY, 1)
        assert trouble_at(node, {1, 2, 3}) is None
        first, second = cluster.places.values()
        first.in_sync.remove(3)
        assert trouble_at(node, {1, 2, 3}) == "1 partition has replicas that are catching up"
        assert trouble_at(node, {1, 2}) is None
        second.leader = -1
        assert trouble_at(node, {1, 2}) == "1 partition has no leader"
        assert trouble_at(node, {1}) is None
        cluster.fakes[2].close()
        assert trouble_at(node, {1, 2, 3}) == "node 2 is unreachable"
    assert "127.0.0.1" in (trouble_at(node, {1}) or "")
