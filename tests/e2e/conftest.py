"""A broker for the tests of the command line, one for each module."""

import uuid
from collections.abc import Iterator

import pytest

from support.command_line import Cli
from support.processes import BrokerProcess


@pytest.fixture(scope="module")
def cli_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Some tests write old records, which must not expire while the test runs.
    environment = {"DRMQ_RETENTION_CHECK_INTERVAL_MS": "3600000"}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", env=environment) as process:
        yield process


@pytest.fixture(scope="module")
def cli(cli_broker: BrokerProcess) -> Cli:
    return Cli(cli_broker.bootstrap)


@pytest.fixture
def topic(cli: Cli) -> str:
    """A new topic of three partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    cli.ok("topic", "create", name, "-p", "3")
    return name
