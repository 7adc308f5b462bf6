"""Planted bugs: each is put into a copy of the project, and a scenario must notice it.

    python -m chaos mutants             # all, about ten minutes
    python -m chaos mutants dedup       # those whose name contains a word

A chaos run that never fails proves nothing. To be run whenever the harness, its rules or the parts below change; a
mutant whose text is no longer found in the source is reported too: adapt it. A mutant whose scenario this machine has no
tool for counts as missed.
"""

# ruff: noqa: E501 (lines are quoted as they stand in the source)
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ATTEMPTS = 3
"""Seeds that are tried. Real processes do not take turns, so a bug may need more than one."""


class Mutant(NamedTuple):
    """A wrong line in place of a right one, and the scenario that must show it."""

    name: str
    module: str
    right: str
    wrong: str
    scenario: str


MUTANTS = [
    Mutant(
        "acks=all answered before the commit",
        "broker/partitions/partition.py",
        "        if self.acked_offset >= next_offset:\n            done(ErrorCode.NONE)",
        "        if self.is_leader:\n            done(ErrorCode.NONE)",
        "F5-leader-isolated",
    ),
    Mutant(
        "high watermark beyond the commit",
        "broker/partitions/partition.py",
        "        next_offset = self.next_offset = header.next_offset\n",
        "        next_offset = self.next_offset = self.high_watermark = header.next_offset\n",
        "F5-leader-isolated",
    ),
    Mutant(
        "votes and terms not written",
        "broker/replication/replica.py",
        "            jobs.append(lambda: self._ledger.save_ballot(ballot))\n",
        "            jobs.append(lambda: None)\n",
        "F12-swapped-majorities",
    ),
    Mutant(
        "batches not synced before they are acknowledged",
        "storage/segment_log.py",
        "            self._files.sync(segment.file.handle)\n",
        "            pass\n",
        "K1-power-cut-on-all",
    ),
    Mutant(
        "nothing at all is synced, votes and terms either",
        "storage/files.py",
        "        os.fdatasync(handle)\n",
        "        pass\n",
        "K1-power-cut-on-all",
    ),
    Mutant(
        "follower does not compare the term of the entry before",
        "raft/follower.py",
        "        elif log.term_at(message.previous_index) != message.previous_term:\n",
        "        elif log.term_at(message.previous_index) is None:\n",
        "F5-leader-isolated-briefly",
    ),
    Mutant(
        "dedup table not kept by followers",
        "broker/partitions/derived_state.py",
        "                partition.producers.apply(header, now_ms)\n",
        "                pass\n",
        "F1-leader-killed",
    ),
    Mutant(
        "dedup table of followers expires at once",
        "broker/partitions/derived_state.py",
        "                partition.producers.apply(header, now_ms)\n",
        "                partition.producers.apply(header, 0)\n",
        "F1-leader-killed",
    ),
    Mutant(
        "group offsets answered before they are replicated, and lost with their leader",
        "broker/coordination/coordinator.py",
        "        if not step.records:\n",
        "        if not step.records or self.has_soft_state:\n",
        "F1-coordinator-killed",
    ),
    Mutant(
        "the end of a term is not known once another leads",
        "kafka/offset_for_leader_epoch.py",
        "    if epoch < 0 or epoch > partition.leader_epoch:\n",
        "    if epoch != partition.leader_epoch:\n",
        "F1-leader-killed",
    ),
    Mutant(
        "a group that has committed nothing, says every node but its coordinator",
        "kafka/server.py",
        "                return Relayed(await self.broker.ask_coordinator(group_ids[0], frame))\n",
        "                return type(response)(\n"
        "                    topics=[offset_fetch.OffsetFetchResponseTopic(topic.name, [\n"
        "                        offset_fetch._nothing(index, ErrorCode.NONE) for index in topic.partition_indexes\n"
        "                    ]) for topic in request.topics]\n"
        "                ) if context.version < 8 else Relayed(await self.broker.ask_coordinator(group_ids[0], frame))\n",
        "F1-follower-killed",
    ),
]


def copy_project(target: Path) -> None:
    """What a run needs, where it may be damaged."""
    for folder in ("src", "tests", "chaos"):
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__"))


def run_scenario(project: Path, scenario: str, seed: int) -> tuple[bool, str]:
    """Whether a scenario passes, and the first thing that is wrong."""
    with tempfile.TemporaryDirectory() as kept:
        result = subprocess.run(
            [sys.executable, "-m", "chaos", scenario, "--seed", str(seed), "--minutes", "0", "--keep", kept],
            cwd=project,
            env={**os.environ, "PYTHONPATH": f"{project}/src", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    lines = result.stdout.splitlines()
    failed = next((number for number, line in enumerate(lines) if ": FAILED: " in line), len(lines) - 1)
    reasons = [line.strip() for line in lines[failed + 1 : failed + 2]] or [result.stderr[-300:]]
    return result.returncode == 0, reasons[0][:160]


def try_mutant(project: Path, mutant: Mutant) -> bool:
    """Whether the mutant is found; says how and after how long."""
    path = project / "src/drmq" / mutant.module
    source = path.read_text()
    if source.count(mutant.right) != 1:
        print(f"STALE   {mutant.name}: its text is in {mutant.module} {source.count(mutant.right)} times", flush=True)
        return False
    path.write_text(source.replace(mutant.right, mutant.wrong))
    started = time.monotonic()
    passed, reason, seed = True, "", 0
    while passed and seed < ATTEMPTS:
        seed += 1
        passed, reason = run_scenario(project, mutant.scenario, seed)
    path.write_text(source)
    seconds = time.monotonic() - started
    print(
        f"{'MISSED ' if passed else 'found  '} {mutant.name} ({mutant.scenario}, {seed} tried, {seconds:.0f} s)"
        f"{'' if passed else f': {reason}'}",
        flush=True,
    )
    return not passed


def try_mutants(words: list[str]) -> int:
    """Try the mutants whose names contain one of `words`, or all; the exit code tells if any was missed."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory)
        copy_project(project)
        for scenario in sorted({mutant.scenario for mutant in chosen}):
            passed, reason = run_scenario(project, scenario, 1)
            if not passed:
                print(f"{scenario} fails without any mutant: {reason}")
                return 2
        found = sum(try_mutant(project, mutant) for mutant in chosen)
    print(f"{found} of {len(chosen)} found")
    return int(found < len(chosen))
