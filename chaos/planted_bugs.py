"""Planted bugs: each is put into a copy of the project, and a scenario must notice it.

    python -m chaos planted-bugs             # all, about ten minutes
    python -m chaos planted-bugs dedup       # those whose name contains a word

A chaos run that never fails proves nothing. To be run whenever the harness, its rules or the parts below change. A bug
whose scenario this machine has no tool for counts as missed. What a planted bug is, and how it finds its place:
`tests/support/planted_bugs.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.planted_bugs import PlantedBug, chosen, try_in_copy

ATTEMPTS = 3
"""Seeds that are tried. Real processes do not take turns, so a bug may need more than one."""


@dataclass(frozen=True)
class ChaosBug:
    """A planted bug, and the scenario that must show it."""

    bug: PlantedBug
    scenario: str


BUGS = [
    ChaosBug(
        PlantedBug(
            "acks=all answered before the commit",
            symbol="Partition.when_durable",
            right="if self.acked_offset >= next_offset:",
            wrong="if self.is_leader:",
        ),
        scenario="F5-leader-isolated",
    ),
    ChaosBug(
        PlantedBug(
            "high watermark beyond the commit",
            symbol="Partition._place",
            right="next_offset = self.next_offset = header.next_offset",
            wrong="next_offset = self.next_offset = self.high_watermark = header.next_offset",
        ),
        scenario="F5-leader-isolated",
    ),
    ChaosBug(
        PlantedBug(
            "votes and terms not written",
            symbol="Replica._persist",
            right="jobs.append(lambda: self.ledger.save_ballot(ballot))",
            wrong="jobs.append(lambda: None)",
        ),
        scenario="F12-swapped-majorities",
    ),
    ChaosBug(
        PlantedBug(
            "batches not synced before they are acknowledged",
            symbol="Journal._write",
            right="self._files.sync(handle)",
            wrong="pass",
        ),
        scenario="K1-power-cut-on-all",
    ),
    ChaosBug(
        PlantedBug(
            "nothing at all is synced, votes and terms either",
            symbol="OsFiles.sync",
            right="os.fdatasync(handle)",
            wrong="pass",
        ),
        scenario="K1-power-cut-on-all",
    ),
    ChaosBug(
        PlantedBug(
            "follower does not compare the term of the entry before",
            symbol="Follower.on_append",
            right="elif log.term_at(message.previous_index) != message.previous_term:",
            wrong="elif log.term_at(message.previous_index) is None:",
        ),
        scenario="F5-leader-isolated-briefly",
    ),
    ChaosBug(
        PlantedBug(
            "dedup table not kept by followers",
            symbol="MessageState.on_appended",
            right="partition.producers.apply(header, now_ms)",
            wrong="pass",
        ),
        scenario="F1-leader-killed",
    ),
    ChaosBug(
        PlantedBug(
            "dedup table of followers expires at once",
            symbol="MessageState.on_appended",
            right="partition.producers.apply(header, now_ms)",
            wrong="partition.producers.apply(header, 0)",
        ),
        scenario="F1-leader-killed",
    ),
    ChaosBug(
        PlantedBug(
            "group offsets answered before they are replicated, and lost with their leader",
            symbol="Coordinator._add",
            right="if not step.records:",
            wrong="if not step.records or self.has_soft_state:",
        ),
        scenario="F1-coordinator-killed",
    ),
    ChaosBug(
        PlantedBug(
            "the end of a term is not known once another leads",
            symbol="Lookups.end_of_epoch",
            right="if epoch < 0 or epoch > partition.leader_epoch:",
            wrong="if epoch != partition.leader_epoch:",
        ),
        scenario="F1-leader-killed",
    ),
    ChaosBug(
        PlantedBug(
            "a group that has committed nothing, says every node but its coordinator",
            symbol="Pipeline._fetch_offsets",
            right="return Relayed(await router.ask_coordinator(exchange.caller, topic, index, exchange.frame))",
            wrong="""
                return (
                    type(response)(
                        topics=[
                            offset_fetch.OffsetFetchResponseTopic(
                                topic.name,
                                [offset_fetch._nothing(index, ErrorCode.NONE) for index in topic.partition_indexes],
                            )
                            for topic in exchange.request.topics
                        ]
                    )
                    if exchange.header.api_version < 8
                    else Relayed(await router.ask_coordinator(exchange.caller, topic, index, exchange.frame))
                )
            """,
        ),
        scenario="F1-follower-killed",
    ),
]


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


def try_planted_bugs(words: list[str]) -> int:
    """Try those whose names contain one of `words`, or all; the exit code tells if any was missed."""
    tried = [(case.bug, case.scenario) for case in chosen(BUGS, words)]
    return try_in_copy(tried, ("src", "tests", "chaos"), run_scenario, ATTEMPTS)
