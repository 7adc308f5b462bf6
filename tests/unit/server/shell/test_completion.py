"""What Tab offers in the shell."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.client import Unreachable
from drmq.server.shell.completion import Names, candidates
from drmq.server.shell.grammar import COMMANDS, GROUP, TOPIC


def names(kind: str) -> Sequence[str]:
    return {TOPIC: ["orders", "other", "parcels"], GROUP: ["billing"]}[kind]


@pytest.mark.parametrize(
    ("line", "typed", "offered"),
    [
        ("", "", sorted(COMMANDS)),
        ("se", "se", ["seek", "send"]),
        ("send ", "", ["orders", "other", "parcels"]),
        ("subscribe o", "o", ["orders", "other"]),
        ("subscribe orders l", "l", ["latest"]),
        ("subscribe orders latest ", "", []),
        ("send orders o", "o", []),
        ("mode ", "", ["group", "single"]),
        ("group b", "b", ["billing"]),
        ("ack ", "", ["all"]),
        ("autocommit o", "o", ["off", "on"]),
        ("help na", "na", ["nack"]),
        ("xyzzy ", "", []),
        ("poll ", "", []),
    ],
)
def test_offers(line: str, typed: str, offered: list[str]) -> None:
    assert candidates(line, names) == (typed, offered)


class Cluster:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_down = False

    def connect(self, _timeout_s: float) -> Any:
        self.asked += 1
        if self.is_down:
            raise Unreachable("no broker")
        topics = [SimpleNamespace(name="orders", is_internal=False), SimpleNamespace(name="__x", is_internal=True)]
        admin = SimpleNamespace(
            topics=SimpleNamespace(all=lambda: topics),
            groups=SimpleNamespace(all=lambda: [SimpleNamespace(group_id="billing")]),
        )
        return Entered(admin)


class Entered:
    def __init__(self, value: Any) -> None:
        self._value = value

    def __enter__(self) -> Any:
        return self._value

    def __exit__(self, *raised: object) -> None:
        pass


def test_names_are_kept_for_a_moment_only() -> None:
    """Each key that is pressed must not ask the cluster, but a new topic must be offered soon."""
    cluster, now = Cluster(), [100.0]
    found = Names(cast(Any, cluster.connect), lambda: now[0])
    assert [found.of(TOPIC), found.of(TOPIC), found.of(GROUP)] == [["orders"], ["orders"], ["billing"]]
    assert cluster.asked == 2
    now[0] += 6
    assert found.of(TOPIC) == ["orders"]
    assert cluster.asked == 3


def test_without_a_cluster_nothing_is_offered() -> None:
    cluster = Cluster()
    cluster.is_down = True
    found = Names(cast(Any, cluster.connect), lambda: 0.0)
    assert list(found.of(TOPIC)) == []
    cluster.is_down = False
    assert found.of(TOPIC) == ["orders"]
