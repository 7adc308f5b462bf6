"""Where values come from, which one wins, and how a wrong one is reported."""

from pathlib import Path

import pytest

from drmq.broker.options import ClusterOptions, PeerAddress
from drmq.model import NodeId
from drmq.model.options import InvalidOption
from drmq.server.config import ConfigError, ServerConfig, load


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_flags_beat_environment_beats_file_beats_default(tmp_path: Path) -> None:
    """Each place wins over the next, value by value, and every value knows its origin."""
    file = write(
        tmp_path,
        "[server]\nnode_id = 2\nport = 2000\nhost = 'localhost'\n\n[broker]\nnum_partitions = 5\nretention_ms = '1h'\n",
    )
    environment = {"DRMQ_PORT": "3000", "DRMQ_NUM_PARTITIONS": "6", "PATH": "/bin"}
    loaded = load({"num_partitions": "7"}, environment, file)
    config = loaded.config
    assert (config.node_id, config.port, config.host) == (2, 3000, "localhost")
    assert config.broker.num_partitions == 7
    assert config.broker.retention_ms == 3_600_000
    assert config.listener.connections_max == 20_000
    origins = {name: loaded.values[name].origin for name in ("node_id", "port", "num_partitions", "connections_max")}
    assert origins == {
        "node_id": f"{file} line 2",
        "port": "variable DRMQ_PORT",
        "num_partitions": "flag --num-partitions",
        "connections_max": "default",
    }
    assert loaded.warnings == []


def test_nothing_given_is_the_default() -> None:
    """Every setting has a default that works."""
    assert load({}, {}, None).config == ServerConfig()


@pytest.mark.parametrize(
    ("flags", "environment", "parts"),
    [
        ({"port": "70000"}, {}, ["port", "'70000'", "flag --port", "too large", "0 to 65535"]),
        ({"segment_bytes": "2GiB"}, {}, ["too large, 2147483647 is the largest value", "1024 or more"]),
        ({"num_partitions": "10001"}, {}, ["num_partitions", "'10001'", "too large", "1 to 10000"]),
        ({}, {"DRMQ_PORT": "http"}, ["port", "variable DRMQ_PORT", "not a whole number", "0 to 65535"]),
        ({}, {"DRMQ_LOG_LEVEL": "loud"}, ["log_level", "DRMQ_LOG_LEVEL", "debug or info or warning or error"]),
        ({"retention_ms": "3 weeks"}, {}, ["retention_ms", "--retention-ms", "'weeks' is not an allowed unit", "7d"]),
        ({"auto_create_topics": "perhaps"}, {}, ["auto_create_topics", "true or false"]),
    ],
)
def test_wrong_value_says_which_whence_why_and_what_is_allowed(
    flags: dict[str, str], environment: dict[str, str], parts: list[str]
) -> None:
    """A person who reads the message knows what to change, and where."""
    with pytest.raises(ConfigError) as caught:
        load(flags, environment, None)
    for part in parts:
        assert part in str(caught.value)


def test_wrong_value_in_a_file_names_its_line(tmp_path: Path) -> None:
    """The line is found even with comments, quotes and other tables around."""
    file = write(tmp_path, "# port = 1\n[listener]\nidle_timeout_ms = 5\n[server]\nhost = 'x'\n'port' = -1\n")
    with pytest.raises(ConfigError, match=r"node\.toml line 6"):
        load({}, {}, file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[broker]\nretention_mss = 5\n", "Did you mean retention_ms?"),
        ("[broker]\nport = 5\n", "belongs in [server]"),
        ("port = 5\n", "must be in the table [server]"),
        ("[brokers]\n", "Did you mean broker?"),
        ("[server]\nzzz = 5\n", "There is no setting 'zzz' in [server]"),
        ("server = 5\n", "must be a table"),
        ("[server\n", "not valid TOML"),
        ("[server]\nport = [1]\n", "a value of type list is not allowed"),
    ],
)
def test_file_with_a_mistake_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """A mistake in the file is never run with a default instead."""
    with pytest.raises(ConfigError) as caught:
        load({}, {}, write(tmp_path, text))
    assert expected in str(caught.value)


def test_keys_may_have_dashes(tmp_path: Path) -> None:
    """Who copies a flag into the file is understood."""
    assert load({}, {}, write(tmp_path, "[server]\nnode-id = 9\n")).config.node_id == 9


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    """A file that was named must be there."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load({}, {}, tmp_path / "no.toml")


def test_unknown_variable_is_a_warning_only_if_it_resembles_a_setting() -> None:
    """The environment is shared, so a stranger's variable passes, and a typing mistake does not pass in silence."""
    environment = {"DRMQ_RETENTON_MS": "5", "DRMQ_SERVICE_HOST_OF_SOMEONE": "x", "DRMQ_BOOTSTRAP": "here:1"}
    loaded = load({}, environment, None)
    assert loaded.warnings == [
        "The variable DRMQ_RETENTON_MS is not a setting and was ignored. Did you mean DRMQ_RETENTION_MS?"
    ]


def test_wildcard_host_needs_an_address_for_clients() -> None:
    """Clients cannot connect to 0.0.0.0, so a node does not tell them to."""
    with pytest.raises(ConfigError, match="set `advertise`"):
        load({"host": "0.0.0.0"}, {}, None)
    config = load({"host": "0.0.0.0", "advertise": "queue.example"}, {}, None).config
    assert config.advertised_address(1234) == ("queue.example", 1234)


@pytest.mark.parametrize(
    ("advertise", "address"),
    [
        (None, ("127.0.0.1", 7)),
        ("name", ("name", 7)),
        ("name:99", ("name", 99)),
        ("[::1]:99", ("::1", 99)),
        ("::1", ("::1", 7)),
    ],
)
def test_advertised_address(advertise: str | None, address: tuple[str, int]) -> None:
    """A port that is not advertised is the one that was bound."""
    assert ServerConfig(advertise=advertise).advertised_address(7) == address


@pytest.mark.parametrize("advertise", ["name:port", ":99", "0.0.0.0:99", "name:0", "a b"])
def test_impossible_advertise_is_refused(advertise: str) -> None:
    """An address that no client can use is found at the start."""
    with pytest.raises(InvalidOption):
        ServerConfig(advertise=advertise)


def test_place_in_a_cluster_comes_from_every_place(tmp_path: Path) -> None:
    """Flags, variables and the file, here a list of the file's own kind."""
    file = write(tmp_path, "[cluster]\npeers = ['2:two:9092', '3:three:9092:7000']\nrack = 'a'\n")
    cluster = load({"roles": "broker"}, {"DRMQ_PEER_PORT": "5000", "DRMQ_RACK": "b"}, file).config.cluster
    assert cluster == ClusterOptions(
        peers={NodeId(2): PeerAddress("two", 9092, 10092), NodeId(3): PeerAddress("three", 9092, 7000)},
        peer_port=5000,
        rack="b",
        roles=("broker",),
    )


def test_mistake_in_the_peers_names_its_origin() -> None:
    """As with any other value."""
    with pytest.raises(ConfigError, match=r"peers \(variable DRMQ_PEERS\): 'two' is not ID:HOST:PORT"):
        load({}, {"DRMQ_PEERS": "two"}, None)
    with pytest.raises(ConfigError, match=r"port \(flag --port\): 65000 \+ 1000 is not a valid port"):
        load({"port": "65000", "peers": "2:two:9092"}, {}, None)


def test_relations_between_settings_are_reported_with_an_origin() -> None:
    """Two values that exclude each other are as wrong as one."""
    with pytest.raises(ConfigError, match="group_session_timeout_max_ms"):
        load({"group_session_timeout_min_ms": "1h"}, {}, None)
