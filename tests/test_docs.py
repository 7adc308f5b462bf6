"""The documentation is true wherever a program can tell: names, versions, defaults, links and commands.

Prose cannot be checked. Everything that a reader might type, click or look up can, so it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pytest

from drmq.broker import Broker, BrokerOptions, MemoryLogs
from drmq.catalog import DEFINITIONS, GROUP_DEFINITIONS, TopicDefaults, default_texts
from drmq.model import ErrorCode, NodeId
from drmq.server.cli import drmq
from drmq.server.config import all_settings
from drmq.server.docs import all_commands
from drmq.wire import APIS
from support.kafka_apis import KAFKA_APIS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def rows(page: Path, first_heading: str) -> Iterator[list[str]]:
    """The cells of a table's rows, without marks of code; the table is found by its first heading."""
    inside = False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if inside and not cells:
            return
        if inside and not cells[0].startswith("---"):
            yield [cell.replace("`", "") for cell in cells]
        inside = inside or (bool(cells) and cells[0] == first_heading)
    assert inside, f"{name_of(page)} has no table that begins with {first_heading!r}"


# ---- reference pages ---------------------------------------------------------------------------------


def test_every_api_with_its_versions() -> None:
    """The table of APIs is the table of the code: key, name, versions served, advertised, flexible."""
    documented = {int(row[0]): row[1:5] for row in rows(REFERENCE / "kafka-protocol.md", "Key")}
    expected = {}
    for key, api in APIS.items():
        name = "".join(word.capitalize() for word in api.key.name.split("_"))
        flexible = str(api.flexible_from) if api.flexible_from <= api.version_max else "never"
        versions = (_versions(first, api.version_max) for first in (api.version_min, api.advertised_min))
        expected[int(key)] = [name, *versions, flexible]
    assert documented == expected


def test_every_api_of_kafka_is_served_or_said_not_to_be() -> None:
    """Kafka's own list, without gaps: no API is forgotten, and none is called unsupported that is served."""
    documented: dict[int, str] = {}
    for row in rows(REFERENCE / "kafka-protocol.md", "Not supported"):
        keys, names = map(int, row[0].split(", ")), row[1].split(", ")
        documented |= dict(zip(keys, names, strict=True))
    served = {int(key) for key, api in APIS.items() if not api.key.is_own}
    assert documented == {key: name for key, name in KAFKA_APIS.items() if key not in served}
    assert served <= KAFKA_APIS.keys()


def _versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def test_every_error_code_that_is_sent() -> None:
    """Each code that the source names is explained, under its own number, and none is explained that does not exist."""
    page = REFERENCE / "kafka-protocol.md"
    documented: dict[str, int] = {}
    for row in rows(page, "Code"):
        numbers, names = row[0].split(", "), row[1].split(", ")
        documented |= dict(zip(names, map(int, numbers), strict=True))
    assert documented == {name: ErrorCode[name] for name in documented}
    sources = "\n".join(
        path.read_text()
        for package in ("broker", "catalog", "groups", "kafka", "model", "records")
        for path in (ROOT / "src" / "drmq" / package).rglob("*.py")
    )
    sent = set(re.findall(r"ErrorCode\.([A-Z_]+)", sources)) - {"NONE", "UNKNOWN_SERVER_ERROR"}
    assert sent <= documented.keys(), sorted(sent - documented.keys())


def test_every_method_of_grpc() -> None:
    """The page has the methods of the services that a gateway offers, and no others."""
    from drmq.gateway.grpc.server import SERVICES

    offered = {f"{name}/{method.name}" for name, (found, _) in SERVICES.items() for method in found.methods}
    assert {row[0] for row in rows(REFERENCE / "grpc.md", "Method")} == offered


def test_every_topic_setting() -> None:
    """Name, type, default, meaning and broker setting of each topic setting are those of the code."""
    documented = {row[0]: row for row in rows(REFERENCE / "topic-settings.md", "Setting")}
    assert documented.keys() == DEFINITIONS.keys()
    broker_settings = _broker_settings()
    for name, definition in DEFINITIONS.items():
        row = documented[name]
        assert row[1] == definition.type.name.lower(), name
        assert row[2] == definition.default, name
        assert row[3] == broker_settings.get(name, ""), name
        assert row[5].startswith(definition.doc.replace("`", "")), name


def _broker_settings() -> dict[str, str]:
    """For each topic setting whose default a node can change, the node's setting that does: found by changing each."""
    found: dict[str, str] = {}
    unchanged = default_texts(TopicDefaults())
    for name, setting in all_settings().items():
        if setting.table == "broker" and type(setting.default) is int:
            changed: dict[str, Any] = {name: setting.default + 1}
            defaults = Broker(NodeId(1), MemoryLogs(), BrokerOptions(**changed)).topics.defaults
            found |= {topic: name for topic, text in default_texts(defaults).items() if text != unchanged[topic]}
    return found


def test_every_setting() -> None:
    """Each setting of a node has a row on the page about configuration."""
    text = (REFERENCE / "configuration.md").read_text()
    missing = [name for name in all_settings() if f"| `{name}` |" not in text]
    assert not missing, "run `make docs`"


def test_every_command() -> None:
    """Each command has a section on the page about the command line."""
    headings = set(HEADING.findall((REFERENCE / "command-line.md").read_text()))
    missing = [path for path, _ in all_commands() if " ".join(("drmq", *path)) not in headings]
    assert not missing, "run `make docs`"


def test_every_machine_output() -> None:
    """Each command that prints for machines has its keys on the page about the command line, and no other has."""
    named: list[str] = []
    for row in rows(REFERENCE / "command-line.md", "Command"):
        named += row[0].split(", ")
        assert row[1], row[0]
    # A command may have a row for one of its flags only.
    documented = {" ".join(word for word in name.split() if not word.startswith("-")) for name in named}
    printing = {
        " ".join(path) for path, command in all_commands() if any("-o" in param.opts for param in command.params)
    }
    assert documented == printing
    assert len(named) == len(documented)


def test_limits_name_real_settings() -> None:
    """What the page about limits calls a setting is one."""
    known = all_settings().keys() | DEFINITIONS.keys()
    named = set(re.findall(r"`([a-z]+(?:[_.][a-z]+)+)`", (REFERENCE / "limits.md").read_text()))
    assert named <= known | GROUP_DEFINITIONS.keys(), sorted(named - known)


def test_every_page_is_in_the_index() -> None:
    """No page is an orphan: the index of the documentation links each of them."""
    index = DOCS / "README.md"
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in LINK.findall(index.read_text())}
    orphans = [name_of(page) for page in DOCS.rglob("*.md") if page != index and page.resolve() not in linked]
    assert not orphans


# ---- links and paths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    """Each relative link leads to a file, and its anchor to a heading there."""
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in {_anchor(heading) for heading in HEADING.findall(found.read_text())}, target


def _anchor(heading: str) -> str:
    """The id that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_of_the_project_exist(page: Path) -> None:
    """A path into the repository that a page mentions is there."""
    for code in CODE.findall(FENCE.sub("", page.read_text())):
        is_path = re.fullmatch(r"(src|tests|bench|demo|fuzz|chaos|docs|requirements)/[\w./-]+", code)
        if is_path and "results" not in code:
            assert (ROOT / code).exists() or code == "bench/.cache", code


# ---- language ----------------------------------------------------------------------------------------

PLAIN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", DOCS / "glossary.md"]
PLAIN += sorted((DOCS / "guide").glob("*.md"))
DIALECT = re.compile(r"\b(whoever|whomever|nobody|somebody|how-manieth|anew|amounts? to|at the door)\b", re.IGNORECASE)
"""Words that style guides of technical documentation avoid: machines are not persons, and established terms exist."""


@pytest.mark.parametrize("page", PLAIN, ids=name_of)
def test_plain_english(page: Path) -> None:
    """The pages that users read first do without the words that once made them hard to read."""
    found = [match[0] for match in DIALECT.finditer(FENCE.sub("", page.read_text()))]
    assert not found, "say which component it is, or use the established term"


# ---- commands and code -------------------------------------------------------------------------------


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, text in FENCE.findall(page.read_text()):
        if language in languages:
            yield text


def shell_lines(page: Path) -> Iterator[str]:
    """What a reader would type: all of an `sh` block, and of a `console` block what follows the prompt."""
    for text in blocks(page, "sh"):
        yield from text.splitlines()
    for text in blocks(page, "console"):
        yield from (line[2:] for line in text.splitlines() if line.startswith("$ "))


def calls(line: str) -> Iterator[list[str]]:
    """The single commands of a line, each as its words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|;&<>"):
            yield words
            words = []
        else:
            words.append(word)
    yield words


def check_drmq(words: list[str]) -> None:
    """Raise `click.UsageError` unless this names a command, with options, values and arguments that it takes."""
    # The root's own settings, or each command would remember for ever that `-h` is none of its options.
    context = click.Context(drmq, info_name="drmq", **drmq.context_settings)
    command: click.Command = drmq
    words = words[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            raise click.UsageError(f"no command {words[0]!r}")
        command, words = found, words[1:]
    if isinstance(command, click.Group):
        return
    try:
        command.make_context(command.name, list(words), parent=context)
    except click.BadParameter as error:
        # The reader's own files are not here.
        if not isinstance(error.param and error.param.type, click.Path | click.File):
            raise


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    """What a page tells its reader to type is a command with options that it has, or a target of the Makefile."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in shell_lines(page):
        for words in calls(line):
            if not words:
                continue
            if words[0] == "drmq":
                try:
                    check_drmq(words)
                except click.UsageError as error:
                    pytest.fail(f"{line}\n{error.format_message()}")
            elif words[0] == "make":
                assert set(words[1:]) <= targets, line


def test_a_wrong_command_is_noticed() -> None:
    """The check above would fail on a flag, a command or an argument that does not exist."""
    check_drmq(["drmq", "topic", "create", "orders", "--partitions", "3"])
    for wrong in (
        ["drmq", "topic", "create", "orders", "--set", "a=b"],
        ["drmq", "topics", "ls"],
        ["drmq", "topic", "create"],
        ["drmq", "offsets", "one", "two"],
        ["drmq", "consume", "orders", "-o", "pretty"],
    ):
        with pytest.raises(click.UsageError):
            check_drmq(wrong)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page: Path) -> None:
    """`make something` in a sentence is a target."""
    makefile = (ROOT / "Makefile").read_text()
    for code in CODE.findall(FENCE.sub("", page.read_text())):
        match = re.fullmatch(r"make ([a-z0-9-]+)", code)
        assert match is None or f"\n{match[1]}:" in makefile, code


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_is_python(page: Path) -> None:
    """Code that a reader would copy can at least be compiled."""
    for text in blocks(page, "python"):
        compile(text, name_of(page), "exec")


def test_the_readme_names_the_test_command() -> None:
    """`make test` is stated, and is what continuous integration runs."""
    assert "**`make test` is the test command.**" in (ROOT / "README.md").read_text()
    assert "make test" in (ROOT / ".ci" / "run").read_text()


# ---- limits ---------------------------------------------------------------------------------------


def _forms(value: int) -> set[str]:
    """The ways in which the page of limits writes a number."""
    units = {
        "MiB": 1 << 20,
        "KiB": 1 << 10,
        "s": 1_000,
        "min": 60_000,
        "h": 3_600_000,
        "day": 86_400_000,
        "days": 86_400_000,
    }
    return {f"{value:,}"} | {f"{value // size} {unit}" for unit, size in units.items() if value % size == 0}


def _limit_rows() -> list[list[str]]:
    text = (ROOT / "docs" / "reference" / "limits.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return [row for row in rows if row[0] != "What" and set(row[0]) != {"-"}]


def test_the_limits_with_a_setting_are_its_defaults() -> None:
    from drmq.transport.limits import ListenerOptions

    defaults = asdict(BrokerOptions()) | asdict(ListenerOptions())
    checked = 0
    for row in _limit_rows():
        names = re.findall(r"`([a-z_]+)`", row[2]) if len(row) == 4 else []
        for name in names:
            assert name in defaults, row
            if name != "segment_bytes":  # the page has the largest value that is allowed
                assert any(form in row[1] for form in _forms(defaults[name])), (row, defaults[name])
                checked += 1
    assert checked > 20


def test_the_limits_without_a_setting_are_those_of_the_code() -> None:
    from drmq.broker.cluster import assignments
    from drmq.broker.cluster.controller import NODES_MAX
    from drmq.broker.component_options import raft_options_of
    from drmq.broker.maintenance import housekeeping
    from drmq.broker.partitions import partition, producer_table
    from drmq.broker.replication import group_host
    from drmq.broker.replication.outgoing_snapshot import HELD_BYTES_MAX
    from drmq.broker.replication.recent_entries import RECENT_BYTES_MAX
    from drmq.broker.services import lease_calls, leased_records, lookups, reads, recompression
    from drmq.catalog.catalog import DELETED_TOPICS_MAX
    from drmq.groups import GroupOptions
    from drmq.kafka import (
        describe_backlog,
        describe_leases,
        describe_topic_partitions,
        exchange,
        fetch_sessions,
        lease_fetch,
        pipeline,
    )
    from drmq.leases import LeaseOptions, queue
    from drmq.model.names import GROUP_ID_BYTES_MAX, TOPIC_NAME_LENGTH_MAX
    from drmq.model.options import PARTITIONS_MAX
    from drmq.server import file_limits, status_port
    from drmq.storage import file_pool
    from drmq.transport import buffers
    from drmq.transport.peers import PeerOptions, lane, strangers
    from drmq.transport.peers.hello import HELLO_FRAME_BYTES_MAX
    from drmq.transport.peers.silence import CEILING
    from drmq.wire.codec import ARRAY_COUNT_MAX

    peers, raft, groups = PeerOptions(), raft_options_of(BrokerOptions()), GroupOptions()
    expected = {
        "Elements of one list in a message": [ARRAY_COUNT_MAX],
        "Names that a client gives itself": [pipeline.NAME_KEPT_MAX],
        "Answers that the client has not read, one connection": [exchange._UNREAD_BYTES_MAX],
        "Reads that wait for the disk": [reads._DISK_READS_MAX],
        "Fetch sessions": [fetch_sessions.PARTITIONS_MAX, fetch_sessions.ALL_PARTITIONS_MAX],
        "Fetches that wait for records": [reads._PARKED_PARTITIONS_MAX],
        "Connections to `metrics_port`": [status_port.CONNECTIONS_MAX],
        "A request to `metrics_port`": [status_port.REQUEST_BYTES_MAX, int(status_port.REQUEST_TIMEOUT_S) * 1_000],
        "The same, whatever the settings": [partition.PRODUCED_BATCH_BYTES_MAX],
        "A batch of DRMQ's own records": [partition.OWN_BATCH_BYTES_MAX],
        "Bytes waiting for followers, one": [raft.uncommitted_bytes_max, raft.uncommitted_entries_max],
        "Lookups by timestamp": [lookups._SEARCHES_MAX, lookups._SEARCHES_PER_CALLER_MAX],
        "Name of a topic": [TOPIC_NAME_LENGTH_MAX],
        "Partitions of a topic": [PARTITIONS_MAX],
        "Idempotent producers remembered": [producer_table.PRODUCERS_MAX],
        "The same, all partitions of a node": [housekeeping.PRODUCERS_MAX],
        "Deleted topics remembered": [DELETED_TOPICS_MAX],
        "Partitions in one page": [describe_topic_partitions.PARTITIONS_MAX],
        "Id of a group": [GROUP_ID_BYTES_MAX],
        "Size of all members": [groups.group_bytes_max],
        "Queues of a shard": [queue.QUEUE_BYTES],
        "Records that a LeaseFetch": [lease_fetch.RECORDS_MAX],
        "Time that a LeaseFetch waits": [lease_fetch.WAIT_MS_MAX],
        "Delay of a release": [lease_fetch.DELAY_MS_MAX],
        "Runs of offsets that a request settles": [lease_calls.SETTLEMENTS_MAX],
        "Offsets that a DescribeBacklog": [describe_backlog.OFFSETS_MAX],
        "Runs of leased offsets in an answer": [describe_leases.LEASES_MAX],
        "Batches that are kept because": [leased_records._KEPT_BYTES_MAX],
        "Batches that wait to be recompressed": [recompression.QUEUED_BYTES_MAX, 2 * recompression.QUEUED_BYTES_MAX],
        "Batches that are recompressed": [recompression._JOBS_MAX],
        "The same, where the broker recompresses": [BrokerOptions().decompressed_bytes_max // 2],
        "Records of one partition that a share": [LeaseOptions().leased_max],
        "Records of one partition that wait": [LeaseOptions().parked_max, LeaseOptions().dying_max],
        "Attempts to open": [assignments._AT_ONCE, int(assignments._RETRY_MAX_S) * 1_000],
        "Messages that wait while": [lane._HELD_MESSAGES_MAX],
        "Campaigns of a node": [group_host._CAMPAIGNS_MAX],
        "Time to answer a greeting": [peers.dial_timeout_ms, CEILING * peers.dial_timeout_ms],
        "Indexes of sealed segments": [file_pool.INDEX_BYTES_MAX],
        "Receive buffers for large requests": [buffers._COUNT_MAX],
        "Open files of all logs": [file_limits.LOGS_MAX, file_limits.KEPT_BACK],
        "Open files of clients": [file_limits.PEERS_MAX, file_limits.KEPT_BACK],
        "Bytes that wait for a peer": [peers.buffered_bytes_max],
        "A frame with heartbeats": [peers.heartbeat_frame_bytes_max],
        "A frame with batches": [peers.append_frame_bytes_max],
        "A frame with a part of a snapshot": [peers.snapshot_frame_bytes_max],
        "A frame with a request": [peers.request_frame_bytes_max],
        "A message with batches": [raft.append_bytes_max, raft.append_entries_max],
        "In-flight messages": [raft.in_flight_messages_max, raft.in_flight_bytes_max],
        "Batches kept in memory": [RECENT_BYTES_MAX],
        "Snapshots that leaders hold": [HELD_BYTES_MAX],
        "Concurrent requests of one peer": [peers.requests_in_flight_max],
        "Connections from peers": [peers.connections_max],
        "Nodes of a cluster": [NODES_MAX],
        "Answers to greetings": [strangers.ANSWERS_MAX, int(strangers.ANSWERS_PER_S)],
        "Connections of unknown nodes": [strangers.CONNECTIONS_MAX, int(strangers.CONNECTED_S) * 1_000],
        "A frame of an unknown node": [HELLO_FRAME_BYTES_MAX],
    }
    rows = _limit_rows()
    for what, values in expected.items():
        found = [row for row in rows if row[0].startswith(what)]
        assert len(found) == 1, (what, found)
        for value in values:
            assert any(form in " ".join(found[0][1:]) for form in _forms(value)), (found[0], value)
