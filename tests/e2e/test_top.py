"""`drmq top` on a real broker: what it shows, its keys, and a cluster that goes away and comes back."""

from __future__ import annotations

import asyncio
import html
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from drmq.client import Admin, NewTopic
from drmq.model import TopicPartition
from drmq.server.cli.options import ClusterChoice
from drmq.server.top.app import Top
from drmq.server.top.observer import Observer
from support.command_line import Cli
from support.polling import PATIENCE_S
from support.processes import BrokerProcess
from support.pseudo_terminal import PseudoTerminal
from support.raw_client import RawClient

Journey = Callable[[Pilot[None]], Awaitable[None]]


def screen(pilot: Pilot[None]) -> str:
    """What a person sees."""
    drawing = pilot.app.export_screenshot()
    lines: dict[float, list[tuple[float, str]]] = {}
    for found in re.finditer(r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', drawing):
        content = html.unescape(found[3]).replace("\xa0", " ")
        lines.setdefault(float(found[2]), []).append((float(found[1]), content))
    return "\n".join("".join(text for _, text in sorted(parts)) for _, parts in sorted(lines.items()))


async def until(pilot: Pilot[None], words: str) -> str:
    """The screen, once it has these words."""
    deadline = time.monotonic() + PATIENCE_S
    while words not in (seen := screen(pilot)):
        assert time.monotonic() < deadline, f"{words!r} is not on the screen:\n{seen}"
        await pilot.pause(0.1)
    return seen


def watch(bootstrap: str, journey: Journey, size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        app = Top(Observer(ClusterChoice(bootstrap, 5.0)), 0.5)
        async with app.run_test(size=size) as pilot:
            await journey(pilot)

    asyncio.run(run())


@pytest.fixture
def busy(tmp_path: Path) -> Any:
    with BrokerProcess(tmp_path / "data") as broker:
        with Admin(broker.bootstrap, timeout_s=60) as admin:
            admin.topics.create(NewTopic("orders", 1, 1, {}))
            admin.groups.commit("billing", {TopicPartition("orders", 0): 0})
        yield broker


def test_everything_is_on_80_by_24_characters(busy: BrokerProcess) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await until(pilot, "Healthy: 1 node")
        for number in range(40):
            with RawClient(busy.bootstrap) as client:
                client.produce("orders", [b"x" * 100])
            if number % 10 == 9:
                await pilot.pause(0.6)
        seen = await until(pilot, "█")
        for words in ("produce ", "consume ", "latency  produce p50", "leases out 0", "dead letters 0"):
            assert words in seen, seen
        assert re.search(r"^node 1 controller +\d+ of \d+ +[█░]{6} +\d+%", seen, re.MULTILINE), seen
        seen = await until(pilot, "billing ")
        seen = await until(pilot, " 40 ")
        assert re.search(r"^\d\d:\d\d:\d\d  node 1  ", seen, re.MULTILINE), "an event"
        for words in ("BROKERS by id", "GROUPS by lag", "EVENTS", "Quit", "Pause", "Help"):
            assert words in seen, seen
        assert max(map(len, seen.splitlines())) <= 80

    watch(busy.bootstrap, journey)


def test_keys(busy: BrokerProcess) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await until(pilot, "Healthy")
        await pilot.press("s")
        await until(pilot, "BROKERS by CPU")
        await pilot.press("g")
        await until(pilot, "GROUPS by age")
        await pilot.press("question_mark")
        await until(pilot, "sort the brokers by id")
        await pilot.press("escape")
        await until(pilot, "BROKERS by CPU")
        await pilot.press("space")
        await until(pilot, "PAUSED")
        with Admin(busy.bootstrap, timeout_s=60) as admin:
            admin.groups.commit("newcomer", {TopicPartition("orders", 0): 0})
        await pilot.pause(6)
        assert "newcomer" not in screen(pilot), "nothing changes while it is paused"
        await pilot.press("space")
        await until(pilot, "newcomer")
        await pilot.resize_terminal(140, 40)
        await until(pilot, "ADDRESS")
        await pilot.press("q")
        assert pilot.app.return_code == 0

    watch(busy.bootstrap, journey)


def test_it_says_that_the_cluster_is_gone_and_goes_on_when_it_returns(busy: BrokerProcess) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await until(pilot, "Healthy")
        await asyncio.to_thread(busy.kill)
        seen = await until(pilot, "Down: Cannot connect")
        assert "node 1" in seen, "the last numbers stay"
        await until(pilot, " old. Trying again.")
        await asyncio.to_thread(lambda: busy.start().wait_ready())
        seen = await until(pilot, "Healthy")
        assert "Trying again" not in seen

    watch(busy.bootstrap, journey)


def test_the_command_in_a_terminal_without_colour(busy: BrokerProcess) -> None:
    assert "needs a terminal" in Cli(busy.bootstrap).refused(1, "top")
    command = [sys.executable, "-m", "drmq", "top", "-b", busy.bootstrap]
    with PseudoTerminal(command, {**os.environ, "NO_COLOR": "1"}) as terminal:
        terminal.expect("Healthy: 1 node")
        terminal.expect("BROKERS by id")
        terminal.type("q")
        assert terminal.end() == 0
