"""Lists of peers as people write them, and what a node makes of one in which it may find itself."""

import pytest

from drmq.broker.options import ClusterOptions, PeerAddress
from drmq.model import NodeId
from drmq.model.options import InvalidOption
from drmq.server.membership import ClusterSettings, NodeAddress, cluster_options, parse_peers

ONE = NodeAddress(1, "127.0.0.1", 9092, None)


def options(node: NodeAddress = ONE, **settings: object) -> ClusterOptions:
    return cluster_options(ClusterSettings(**settings), node)  # type: ignore[arg-type]


def problem(node: NodeAddress = ONE, **settings: object) -> str:
    with pytest.raises(InvalidOption) as caught:
        options(node, **settings)
    return f"{caught.value.name}: {caught.value.problem}"


def test_alone() -> None:
    """Nothing said: a cluster of its own, without a listener for others."""
    assert options() == ClusterOptions()
    assert options().peer_port is None


def test_peers_have_a_port_of_their_own() -> None:
    """A thousand above the clients' port, here and there, unless it is said."""
    found = options(peers=("2:localhost:9093", "3:[::1]:9094:5000"))
    assert found.peer_port == 10092
    assert found.peers == {
        NodeId(2): PeerAddress("localhost", 9093, 10093),
        NodeId(3): PeerAddress("::1", 9094, 5000),
    }


def test_peer_port_alone_opens_the_listener() -> None:
    """A first node that others may join later."""
    assert options(peer_port=7000) == ClusterOptions(peer_port=7000)
    assert options(peer_port=0).peer_port == 0


def test_free_port_makes_a_free_peer_port() -> None:
    """With port 0 there is nothing to add to."""
    assert options(NodeAddress(1, "127.0.0.1", 0, None), peers=("2:localhost:9093",)).peer_port == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two", "is not ID:HOST:PORT"),
        ("2:localhost", "is not ID:HOST:PORT"),
        ("2:a:1:2:3", "is not ID:HOST:PORT"),
        ("2:::1:9093", "is not ID:HOST:PORT"),
        ("localhost:9093:2", "'localhost' is not a node id"),
        ("-1:localhost:9093", "'-1' is not a node id"),
        ("2147483648:localhost:9093", "not a node id"),
        ("2::9093", "not a host"),
        ("2:0.0.0.0:9093", "not a host that a node can connect to"),
        ("2:localhost:kafka", "'kafka' is not a port"),
        ("2:localhost:0", "'0' is not a port"),
        ("2:localhost:9093:70000", "'70000' is not a port"),
        ("2:localhost:65000", "as ID:HOST:PORT:PEERPORT"),
    ],
)
def test_bad_peer(text: str, expected: str) -> None:
    """Each with its text, so that it is found in a long list."""
    found = problem(peers=("3:localhost:9094", text))
    assert found.startswith(f"peers: {text!r}")
    assert expected in found


def test_node_is_named_once() -> None:
    """Two addresses for one id, and two ids for one address."""
    assert "node 2 is named twice" in problem(peers=("2:a:1", "2:b:1"))
    assert "nodes 2 and 3 have the same address" in problem(peers=("2:localhost:9093", "3:127.0.0.1:9093"))
    # On one machine the clients' port of one may not be the peers' port of another either.
    assert "nodes 2 and 3" in problem(peers=("2:a:9092", "3:a:10092"))
    assert parse_peers(["2:a:9092", "3:b:9092"]).keys() == {2, 3}


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (ONE, "1:127.0.0.1:9092"),
        (ONE, "1:localhost:9092"),
        (NodeAddress(1, "127.0.0.1", 9092, "queue.example"), "1:queue.example:9092"),
        (NodeAddress(1, "0.0.0.0", 9092, "queue.example"), "1:another-name:9092"),
    ],
)
def test_node_finds_itself_in_the_list(node: NodeAddress, text: str) -> None:
    """The same list can be given to all nodes."""
    assert options(node, peers=(text, "2:two:9092")).peers.keys() == {2}


def test_own_id_elsewhere_is_refused() -> None:
    """Two nodes with one id would give the same votes."""
    found = problem(peers=("1:localhost:9093", "2:localhost:9094"))
    assert "node 1 is this node, and localhost:9093 with peer port 10093 is not its address" in found
    assert "set another `node_id`" in found
    assert "is this node" in problem(peers=("1:elsewhere:9092",))


def test_own_address_with_another_id_is_refused() -> None:
    """A copied command line in which the id was forgotten."""
    assert "which is 1 and not 2" in problem(peers=("2:localhost:9092",))


def test_listening_everywhere_needs_a_name_for_others() -> None:
    """The one for clients will do; a node that listens everywhere for peers only has none."""
    node = NodeAddress(1, "0.0.0.0", 9092, "queue.example:9000")
    assert options(node, peers=("2:two:9092",)).advertised_peer_host == "queue.example"
    assert options(peers=("2:two:9092",), peer_host="0.0.0.0").advertised_peer_host == "127.0.0.1"
    assert options(node, peer_port=1, advertised_peer_host="inside").advertised_peer_host == "inside"
    assert "advertised_peer_host" in problem(peer_port=1, advertised_peer_host="0.0.0.0")


def test_peer_host_is_that_of_clients_unless_said() -> None:
    """Both listeners are at one address by default."""
    assert options(NodeAddress(1, "10.0.0.1", 9092, None), peer_port=1).peer_host == "10.0.0.1"
    assert options(peer_port=1, peer_host="10.0.0.2").peer_host == "10.0.0.2"


def test_ports_differ() -> None:
    """Clients and peers are not served on one port."""
    assert "9092 is the port for clients" in problem(peer_port=9092)


def test_roles() -> None:
    """One or both, in any order."""
    assert options(roles=("controller", "broker")).roles == ("broker", "controller")
    assert options(roles=("controller",)).roles == ("controller",)
    assert "'leader' is not a role; allowed are broker and controller" in problem(roles=("broker", "leader"))
    assert "does nothing" in problem(roles=())
