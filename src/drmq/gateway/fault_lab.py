"""The fault lab: kills, pauses, cuts and starts the nodes of a local cluster, so that people can watch what happens.

It works on clusters of `drmq up --lab` alone, and does what the commands `drmq node kill`, `pause`, `resume` and
`start` do, by running them: only these know how to tell a process of this cluster from another one with the same id.
A cut is asked of the node itself. What is about to be done becomes an event of a node that survives it.

A gateway may kill its own node. It then ends too, and the gateway of any other node can start that node again. So a
command that it runs is in a session of its own, and goes on if the gateway ends first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from drmq.client import Address, ClientError, split_address
from drmq.client.fault_lab import ask_lab
from drmq.gateway.problems import ProblemError
from drmq.gateway.types import LabNode, LabView

log = logging.getLogger("drmq.gateway")

Action = Literal["kill", "pause", "resume", "start", "cut", "heal"]
State = Literal["running", "paused", "cut", "dead"]

POSSIBLE: Final[Mapping[Action, Sequence[State]]] = {
    "kill": ("running", "cut", "paused"),
    "pause": ("running", "cut"),
    "resume": ("paused",),
    "start": ("dead",),
    "cut": ("running",),
    "heal": ("cut",),
}
"""The states of a node in which an action is possible."""
_COMMAND_TIMEOUT_S = 150.0
_ASK_TIMEOUT_S = 2.0
_ADVICE = "`drmq up --lab` starts a local cluster with the fault lab."


@dataclass(frozen=True, slots=True)
class _Node:
    """An entry of `cluster.json`."""

    node_id: int
    pid: int | None
    kafka: Address
    data_dir: Path
    has_lab: bool

    def state(self) -> State:
        """What its process does, and whether the node says that it is cut. Waits for the node's answer."""
        letter = None if self.pid is None else _process_state(self.pid, self.data_dir)
        if letter is None:
            return "dead"
        if letter in "Tt":
            return "paused"
        try:
            return "cut" if self.has_lab and ask_lab(self.kafka, timeout_s=_ASK_TIMEOUT_S) else "running"
        except ClientError:
            return "running"  # it does not answer, perhaps because it has just been started


class FaultLab:
    """The lab of one gateway. Used on the event loop."""

    def __init__(self, directory: Path | None, own_node_id: int | None) -> None:
        self._directory = directory
        self._own_node_id = own_node_id
        self._acting = asyncio.Lock()

    async def view(self) -> LabView:
        """All nodes and their states; not enabled if this node was started without the lab, or not by `drmq up`."""
        nodes = self._nodes()
        states = await self._states(nodes)
        shown = [LabNode(node.node_id, states[node.node_id], node.node_id == self._own_node_id) for node in nodes]
        return LabView(bool(nodes), shown)

    async def act(self, node_id: int, action: Action) -> LabView:
        """Do something to a node. Returns all nodes after it. Raises `ProblemError`."""
        async with self._acting:
            nodes = {node.node_id: node for node in self._nodes()}
            if not nodes:
                raise ProblemError(403, "the fault lab is off", advice=_ADVICE)
            node = nodes.get(node_id)
            if node is None:
                there = ", ".join(map(str, nodes))
                raise ProblemError(404, f"there is no node {node_id}", advice=f"This cluster has the nodes {there}.")
            if not node.has_lab:
                raise ProblemError(403, f"node {node_id} was started without the fault lab", advice=_ADVICE)
            states = await self._states(list(nodes.values()))
            if states[node_id] not in POSSIBLE[action]:
                possible = [each for each, allowed in POSSIBLE.items() if states[node_id] in allowed]
                raise ProblemError(
                    409,
                    f"node {node_id} is {states[node_id]}, so {action} is not possible",
                    advice=f"Possible now: {', '.join(possible)}.",
                )
            await self._note(node_id, action, [each for each in nodes.values() if states[each.node_id] == "running"])
            if action in ("cut", "heal"):
                await asyncio.to_thread(ask_lab, node.kafka, cut=action == "cut")
            else:
                await self._run(action, node_id)
        return await self.view()

    async def _note(self, node_id: int, action: Action, witnesses: list[_Node]) -> None:
        """Make what is about to be done an event of a node; of another than the one that it is done to, if possible."""
        text = f"{action} node {node_id}"
        log.warning("fault lab: %s", text)
        # The order of preference: this gateway's own node, the others, the node that it is done to.
        for node in sorted(witnesses, key=lambda each: (each.node_id == node_id, each.node_id != self._own_node_id)):
            try:
                await asyncio.to_thread(ask_lab, node.kafka, note=text, timeout_s=_ASK_TIMEOUT_S)
            except ClientError:
                continue
            return

    async def _run(self, action: Action, node_id: int) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "drmq",
            "node",
            action,
            str(node_id),
            "--data-dir",
            str(self._directory),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_COMMAND_TIMEOUT_S):
                _, said = await process.communicate()
        except TimeoutError:
            raise ProblemError(504, f"`drmq node {action} {node_id}` has not ended") from None
        if process.returncode:
            reason = said.decode(errors="replace").strip().removeprefix("error: ")
            raise ProblemError(409, reason or f"`drmq node {action} {node_id}` failed")

    async def _states(self, nodes: Sequence[_Node]) -> dict[int, State]:
        # At the same time: a node that does not answer takes a while.
        found = await asyncio.gather(*(asyncio.to_thread(node.state) for node in nodes))
        return {node.node_id: state for node, state in zip(nodes, found, strict=True)}

    def _nodes(self) -> list[_Node]:
        """The nodes of `cluster.json`; none if there is no lab here."""
        if self._directory is None:
            return []
        try:
            content = json.loads((self._directory / "cluster.json").read_text())
            return [self._node(entry) for entry in content["nodes"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ProblemError(503, f"cluster.json of the local cluster cannot be read: {error!r}") from None

    def _node(self, entry: Mapping[str, Any]) -> _Node:
        assert self._directory is not None
        host, port = split_address(entry["kafka"])
        address = Address(host, port or 0)
        return _Node(entry["id"], entry["pid"], address, self._directory / entry["data_dir"], entry.get("lab", False))


def _process_state(pid: int, data_dir: Path) -> str | None:
    """The letter of a process's state, if it is a node on this data directory; None if there is no such process.

    For display: `drmq node` checks more before it signals a process.
    """
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        # pid (name) state ...; the name may have spaces and brackets.
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None
    return letter if str(data_dir).encode() in arguments and letter not in "ZX" else None
