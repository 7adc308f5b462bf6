"""Planted bugs: each is put into the core, and the simulation must notice.

A simulation that never fails proves nothing. `test_planted_bugs.py` runs all of these within the number of seeds
recorded here; after a change of the core or the simulation, run

    python tests/unit/raft/planted_bugs.py            # all: at which seed is each found, and by what?
    python tests/unit/raft/planted_bugs.py vote       # those whose name contains a word

What a planted bug is, and how it finds its place: `tests/support/planted_bugs.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

# For those who run this file by itself: the tests are not installed.
sys.path.insert(0, str(Path(__file__).parents[2]))

from support.planted_bugs import PlantedBug, chosen, planted_on_import, try_seeds

SEEDS_MAX = 3000


@dataclass(frozen=True)
class SeededBug:
    """A planted bug, and the seeds that show it."""

    bug: PlantedBug
    seeds: int
    """So many, from 0, must be enough to see it."""
    first: int = 0
    """Where the tests begin to look, for those that take long; about where it was found last."""


BUGS = [
    SeededBug(
        PlantedBug(
            "an entry half replaced: a conflict is looked for at the entry's last index",
            symbol="Follower.on_append",
            right="log.term_at(entry.first)",
            wrong="log.term_at(entry.index)",
        ),
        seeds=1000,
        first=270,
    ),
    SeededBug(
        PlantedBug(
            "an entry is sent after the wrong one: the follower's hint lies inside it",
            symbol="Leader._send_append",
            right="""
                progress.next = entries[0].first
                previous_index = LogIndex(progress.next - 1)
            """,
            wrong="progress.next = entries[0].first",
        ),
        seeds=1000,
        first=270,
    ),
    SeededBug(
        PlantedBug(
            "votes twice after restart: the vote is sent before it is durable",
            symbol="Election.on_vote_request",
            right="state.send_after_persist(response)",
            wrong="state.send(response)",
        ),
        seeds=300,
        first=245,
    ),
    SeededBug(
        PlantedBug(
            "votes twice in a term: the vote is given up with the leader",
            symbol="ReplicaState.become_follower",
            right="self.vote = None",
            wrong="""
                    self.vote = None
                self.vote = self.vote if leader_id is not None else None
            """,
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "votes for anyone: the log is not compared",
            symbol="Election.on_vote_request",
            right="and state.log.is_up_to_date(message.last_index, message.last_term)",
            wrong="",
        ),
        seeds=1000,
        first=830,
    ),
    SeededBug(
        PlantedBug(
            "compares lengths only: the last term is not looked at",
            symbol="RaftLog.is_up_to_date",
            right="return (last_term, last_index) >= (self.last_term, self.last_index)",
            wrong="return last_index >= self.last_index",
        ),
        seeds=300,
    ),
    SeededBug(
        PlantedBug(
            "counts its own vote before it is durable",
            symbol="Election._begin_election",
            right="""
                self._votes = {}
                self._state.become_candidate()
                self._ask()
            """,
            wrong="""
                self._state.become_candidate()
                self._votes = {self._state.node_id: True}
                self._ask()
                self._count()
            """,
        ),
        seeds=1000,
        first=510,
    ),
    SeededBug(
        PlantedBug(
            "asks for votes before its log is durable",
            symbol="Election._ask",
            right="state.send_after_persist(VoteRequest",
            wrong="state.send(VoteRequest",
        ),
        seeds=300,
    ),
    SeededBug(
        PlantedBug(
            "commits an older term by counting",
            symbol="Leader._maybe_commit",
            right="if index <= log.commit_index or log.term_at(index) != state.term:",
            wrong="if index <= log.commit_index:",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "counts itself before its append is durable",
            symbol="Leader._maybe_commit",
            right="reached[state.node_id] = log.durable_index",
            wrong="reached[state.node_id] = log.last_index",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "accepts entries before they are durable",
            symbol="Follower._accept",
            right="state.send_after_persist(AppendAccepted(",
            wrong="state.send(AppendAccepted(",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "does not truncate on conflict",
            symbol="Follower.on_append",
            right="if term_here == entry.term:",
            wrong="if term_here is not None:",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "truncates whatever is behind, conflict or not",
            symbol="Follower.on_append",
            right="""
                if term_here == entry.term:
                    continue
            """,
            wrong="",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "skips the check of the previous term",
            symbol="Follower.on_append",
            right="elif log.term_at(message.previous_index) != message.previous_term:",
            wrong="elif log.term_at(message.previous_index) is None:",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "a follower's commit is its own last index",
            symbol="Follower.on_append",
            right="log.commit_to(min(message.commit, last_new))",
            wrong="log.commit_to(min(message.commit, log.last_index))",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "heartbeats carry the leader's commit, unbounded by the match",
            symbol="Leader._send_heartbeat",
            right="commit = min(state.log.commit_index, progress.match)",
            wrong="commit = state.log.commit_index",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "no entry at the beginning of a reign",
            symbol="Leader.__init__",
            right='self._append(EntryKind.NOTHING, b"")',
            wrong="pass",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "a learner counts as a voter",
            symbol="majority_reached",
            right="numbers = sorted(reached.get(voter, 0) for voter in voters)",
            wrong="numbers = sorted(reached.values())",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "joint: only the new majority decides about commits",
            symbol="quorum_reached",
            right="number = min(number, majority_reached(configuration.voters_before, reached))",
            wrong="pass",
        ),
        seeds=300,
    ),
    SeededBug(
        PlantedBug(
            "joint: only the old majority decides about commits",
            symbol="quorum_reached",
            right="number = min(number, majority_reached(configuration.voters_before, reached))",
            wrong="number = majority_reached(configuration.voters_before, reached)",
        ),
        seeds=300,
    ),
    SeededBug(
        PlantedBug(
            "no joint configuration: voters are swapped in one step",
            symbol="Configuration.towards",
            right="return Configuration(voters, learners, self.voters)",
            wrong="return Configuration(voters, learners)",
        ),
        seeds=1000,
        first=60,
    ),
    SeededBug(
        PlantedBug(
            "a change is accepted while another is under way",
            symbol="Leader.propose_configuration",
            right="if state.configuration.is_joint or state.configurations.latest_index > state.log.commit_index:",
            wrong="if state.configuration.is_joint:",
        ),
        seeds=1000,
        first=100,
    ),
    SeededBug(
        PlantedBug(
            "a configuration is not rolled back with its entry",
            symbol="ReplicaState.truncate_from",
            right="self.configurations.on_truncate(start)",
            wrong="pass",
        ),
        seeds=300,
    ),
    SeededBug(
        PlantedBug(
            "a removed leader cannot stand though it is needed",
            symbol="ReplicaState.may_campaign",
            right="return self.configurations.voted_since(self.log.commit_index, self.node_id)",
            wrong="return self.configuration.votes(self.node_id)",
        ),
        seeds=2000,
        first=490,
    ),
    SeededBug(
        PlantedBug(
            "half a snapshot is installed",
            symbol="Follower.on_snapshot_chunk",
            right="receiving.complete = message.done",
            wrong="""
                receiving.complete = message.done
                if not message.done and self._state.role is Role.FOLLOWER:
                    self._state.restore(meta)
                    self._snapshot_to_install = meta
            """,
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "a damaged snapshot is installed",
            symbol="Follower.on_snapshot_received",
            right="if not intact:",
            wrong="if False:",
        ),
        seeds=1000,
        first=100,
    ),
    SeededBug(
        PlantedBug(
            "a snapshot replaces entries that fit to it",
            symbol="Follower.on_snapshot_received",
            right="if log.term_at(meta.index) == meta.term:",
            wrong="if False:",
        ),
        seeds=4000,
        first=3890,
    ),
    SeededBug(
        PlantedBug(
            "chunks are kept wherever they belong",
            symbol="Follower.on_snapshot_chunk",
            right="message.offset == receiving.received and",
            wrong="",
        ),
        seeds=300,
        first=40,
    ),
    SeededBug(
        PlantedBug(
            "an old report makes replaced entries durable",
            symbol="RaftLog.truncate_from",
            right="batch.end_index = min(batch.end_index, end)",
            wrong="pass",
        ),
        seeds=1000,
    ),
    SeededBug(
        PlantedBug(
            "applies what is committed but not durable here",
            symbol="RaftLog.take_committed",
            right="end = LogIndex(min(self.commit_index, self.durable_index) + 1)",
            wrong="end = LogIndex(self.commit_index + 1)",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "reads are confirmed by the leader's own word",
            symbol="Leader._count_reads",
            right="self.reads.on_quorum(quorum_reached(state.configuration, rounds))",
            wrong="self.reads.on_quorum(self.reads.last_round)",
        ),
        seeds=300,
    ),
    SeededBug(
        PlantedBug(
            "reads are served before the first own commit",
            symbol="Leader.prepare_ready",
            right="if self.reads.has_waiting and self.knows_commit:",
            wrong="if self.reads.has_waiting:",
        ),
        seeds=300,
    ),
    SeededBug(
        PlantedBug(
            "a read joins a round that is already under way",
            symbol="ReadRounds.add",
            right="self._waiting.append(context)",
            wrong="""
                if self._rounds:
                    self._rounds[-1][2].append(context)
                else:
                    self._waiting.append(context)
            """,
        ),
        seeds=1000,
    ),
    SeededBug(
        PlantedBug(
            "a lost append is never noticed",
            symbol="Leader.on_heartbeat_response",
            right="if progress.on_silence():",
            wrong="if False:",
        ),
        seeds=100,
    ),
    SeededBug(
        PlantedBug(
            "a snapshot's chunk that was lost is never asked for again",
            symbol="SnapshotSending.is_overdue",
            right="return self.stage is not Stage.WANTED and tick - self.asked_tick >= ticks_max",
            wrong="return False",
        ),
        seeds=300,
        first=20,
    ),
    SeededBug(
        PlantedBug(
            "the joint configuration is never left",
            symbol="Leader._on_commit",
            right="if state.configuration.is_joint:",
            wrong="if False:",
        ),
        seeds=300,
    ),
    SeededBug(
        PlantedBug(
            "a stale leader is never told",
            symbol="Node._settle_term",
            right="state.send_in_term(HeartbeatResponse(",
            wrong="str(HeartbeatResponse(",
        ),
        seeds=1000,
        first=300,
    ),
]


def _rests_on_the_core(module: str) -> bool:
    """Whether a module is the core, or holds parts of it and must be loaded with the bug as well."""
    return module == "drmq.raft" or module.startswith("drmq.raft.") or module == "unit.raft.invariants"


@contextmanager
def planted(bug: PlantedBug | None) -> Iterator[ModuleType]:
    """The simulation on a core with the bug in it; the real core is untouched."""
    name = "simulation_with_a_bug"
    with planted_on_import(bug, _rests_on_the_core):
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "simulation.py")
        assert spec is not None
        assert spec.loader is not None
        simulation = importlib.util.module_from_spec(spec)
        sys.modules[name] = simulation
        try:
            spec.loader.exec_module(simulation)
            yield simulation
        finally:
            del sys.modules[name]


def seed_that_finds(case: SeededBug, seeds: range) -> tuple[int, str] | None:
    """The first of `seeds` at which the simulation fails, and how; None if at none."""
    with planted(case.bug) as simulation:
        for seed in seeds:
            try:
                simulation.run_seed(seed)
            except Exception as error:  # noqa: BLE001 (any failure is a find)
                return seed, f"{type(error).__name__}: {error}".split("\n")[0]
    return None


def main(words: list[str]) -> int:
    return try_seeds(chosen(BUGS, words[:1]), lambda case: seed_that_finds(case, range(SEEDS_MAX)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
