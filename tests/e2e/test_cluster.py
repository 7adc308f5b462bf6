"""Three real processes, one failure each: what was acknowledged is there, once, and the same on every node.

Each test keeps a `Load` running, lets something go wrong in the middle, waits until the cluster is whole, and has
everything judged (`support.cluster_load`): the rules R1 to R8 on what clients saw, group offsets that never go back,
clients that all work again, and the files of the replicas compared byte by byte. How long things took is printed, not
judged.

The long set, with random schedules and more kinds of failure, is `make chaos`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.checked import Place
from support.cluster import ClusterProcesses, Network
from support.cluster_load import ENVIRONMENT, LARGE, SMALL, Load
from support.networks import best_network
from support.polling import eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient, RequestFailed

ACKS_MIN = 400
WATCHED = Place(SMALL, 0)
_METADATA = "internal/__cluster_metadata/0"
DAMAGED = [("drmq.json", 70), (f"{_METADATA}/ledger", 530), (f"{_METADATA}/{0:020}.log", 70)]
"""Files with a byte that has sound parts behind it: damage there is not the torn end that a crash leaves."""


@contextmanager
def loaded_cluster(directory: Path, network: Network | None = None) -> Iterator[Load]:
    """A cluster with clients at work, judged at the end."""
    with ClusterProcesses(directory, 3, network, ENVIRONMENT) as cluster:
        load = Load(cluster)
        load.wait_loaded()
        yield load
        verdict = load.judge(acks_min=ACKS_MIN)
        print(verdict)
        assert verdict.passed, verdict


def test_leader_killed_and_restarted(tmp_path: Path) -> None:
    """Another node leads, and the one that died takes part again."""
    with loaded_cluster(tmp_path) as load:
        cluster = load.cluster
        leader = cluster.leader_of(*WATCHED)
        cluster[leader].kill()
        print(f"next acknowledgement after {load.wait_ack_after(time.monotonic(), WATCHED):.2f} s")
        load.wait_loaded()
        assert cluster.leader_of(*WATCHED) != leader
        load.look_at_commits()
        cluster[leader].start().wait_ready()


def test_follower_killed_and_restarted(tmp_path: Path) -> None:
    """Two of three are a majority: writes go on."""
    with loaded_cluster(tmp_path) as load:
        cluster = load.cluster
        follower = next(node for node in cluster.ids if node != cluster.leader_of(*WATCHED))
        killed = time.monotonic()
        cluster[follower].kill()
        load.wait_loaded()
        print(f"longest gap {load.history.longest_gap(killed, time.monotonic(), WATCHED):.2f} s")
        cluster[follower].start().wait_ready()


def test_leader_paused(tmp_path: Path) -> None:
    """A leader that stands still is replaced; what it does when it wakes up harms nobody."""
    with loaded_cluster(tmp_path) as load:
        cluster = load.cluster
        leader = cluster.leader_of(*WATCHED)
        paused = time.monotonic()
        cluster[leader].pause()
        load.wait_loaded()
        print(f"longest gap {load.history.longest_gap(paused, time.monotonic(), WATCHED):.2f} s")
        load.look_at_commits()
        cluster[leader].resume()


def test_leader_cut_off_from_the_others(tmp_path: Path) -> None:
    """Clients still reach the old leader. It acknowledges nothing, for it is a minority."""
    network, choice = best_network(3)
    print(choice)
    with loaded_cluster(tmp_path, network) as load:
        cluster = load.cluster
        leader = cluster.leader_of(*WATCHED)
        network.isolate(leader)
        load.wait_ack_after(time.monotonic(), WATCHED)
        load.wait_loaded()
        with RawClient(cluster[leader].bootstrap, timeout_s=3.0) as client, pytest.raises((RequestFailed, OSError)):
            client.produce(WATCHED.topic, [b"refused"], partition=WATCHED.partition)
        network.heal()


def test_node_returns_with_an_empty_disk(tmp_path: Path) -> None:
    """It is a new member that knows nothing and has promised nothing, and gets everything from the others."""
    with loaded_cluster(tmp_path) as load:
        cluster = load.cluster
        leader = cluster.leader_of(*WATCHED)
        cluster[leader].kill()
        cluster[leader].wipe()
        load.wait_loaded()
        cluster[leader].start().wait_ready()
        print(f"whole again after {cluster.wait_healthy():.2f} s")


def test_rolling_restart(tmp_path: Path) -> None:
    """Every node is stopped and started in its turn, and no client hears of an error."""
    with loaded_cluster(tmp_path) as load:
        cluster = load.cluster
        for node_id in cluster.ids:
            begun = time.monotonic()
            assert cluster[node_id].terminate() == 0
            stopped = time.monotonic()
            cluster[node_id].start().wait_ready()
            cluster.wait_healthy()
            load.wait_loaded()
            gap = load.history.longest_gap(begun, stopped, WATCHED)
            print(f"node {node_id}: stopped in {stopped - begun:.2f} s, longest gap meanwhile {gap * 1_000:.0f} ms")
        assert not load.client_problems()


def test_all_killed_and_restarted(tmp_path: Path) -> None:
    """Nothing is left in memory anywhere, and nothing is lost."""
    with loaded_cluster(tmp_path) as load:
        cluster = load.cluster
        load.look_at_commits()
        cluster.kill_all()
        started = time.monotonic()
        for node in cluster.nodes.values():
            node.start()
        print(f"next acknowledgement after {load.wait_ack_after(started, WATCHED):.2f} s")


def test_what_a_node_refuses(tmp_path: Path) -> None:
    """Data of another cluster is kept out; what cannot be read is named, and left as it is."""
    with ClusterProcesses(tmp_path / "cluster", 3) as cluster:
        cluster.create_topic(LARGE)
        node = cluster[3]
        assert node.terminate() == 0

        own = tmp_path / "own"
        node.data_dir.rename(own)
        with BrokerProcess(tmp_path / "other", node_id=3) as other:
            assert other.terminate() == 0
        shutil.copytree(other.data_dir, node.data_dir)
        node.start()
        for node_id in cluster.ids:
            eventually(
                cluster[node_id].log_text,
                lambda text: "belongs to cluster" in text,
                what=f"a refusal in the log of node {node_id}",
            )
        if node.running:
            node.kill()
        shutil.rmtree(node.data_dir)
        own.rename(node.data_dir)

        for damaged, position in DAMAGED:
            path = node.data_dir / damaged
            sound = path.read_bytes()
            content = bytearray(sound)
            content[position] ^= 0xFF
            path.write_bytes(content)
            said = refusal(cluster, 3)
            assert path.name in said, said
            assert path.read_bytes() == content, "a refused file was changed"
            path.write_bytes(sound)

        node.start().wait_ready()
        cluster.wait_healthy()


def refusal(cluster: ClusterProcesses, node_id: int) -> str:
    """Start a node that must not start; what it says."""
    node = cluster[node_id]
    before = len(node.log_text())
    node.start()
    try:
        eventually(node.exit_status, lambda status: status is not None, what=f"the end of node {node_id}")
    finally:
        if node.running:
            node.kill()
    assert node.exit_status() == 1, node.log_text()
    said = node.log_text()[before:]
    assert "Traceback" not in said, said
    return said
