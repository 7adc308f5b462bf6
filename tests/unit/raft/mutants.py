"""Planted bugs: each is put into a copy of the core, and the simulation must notice.

A simulation that never fails proves nothing. `test_mutants.py` runs all of these within the number of seeds
recorded here; after a change of the core or the simulation, run

    python tests/unit/raft/mutants.py            # all: at which seed is each found, and by what?
    python tests/unit/raft/mutants.py vote       # those whose name contains a word

A mutant whose text is no longer in the source is reported too: adapt it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

RAFT = Path(__file__).resolve().parents[3] / "src" / "drmq" / "raft"


class Mutant(NamedTuple):
    """A wrong line in place of a right one."""

    name: str
    module: str
    right: str
    wrong: str
    seeds: int
    """So many, from 0, must be enough to see it."""
    first: int = 0
    """Where the tests begin to look, for those that take long; about where it was found last."""


MUTANTS = [
    Mutant(
        "an entry half replaced: a conflict is looked for at the entry's last index",
        "follower",
        "log.term_at(entry.first)",
        "log.term_at(entry.index)",
        1000,
        400,
    ),
    Mutant(
        "an entry is sent after the wrong one: the follower's hint lies inside it",
        "leader",
        "                progress.next = entries[0].first\n"
        "                previous_index = LogIndex(progress.next - 1)\n",
        "                progress.next = entries[0].first\n",
        1000,
        470,
    ),
    Mutant(
        "votes twice after restart: the vote is sent before it is durable",
        "election",
        "        state.send_after_persist(response)",
        "        state.send(response)",
        300,
        245,
    ),
    Mutant(
        "votes twice in a term: the vote is given up with the leader",
        "state",
        "            self.vote = None\n",
        "            self.vote = None\n        self.vote = self.vote if leader_id is not None else None\n",
        100,
    ),
    Mutant(
        "votes for anyone: the log is not compared",
        "election",
        "            and state.log.is_up_to_date(message.last_index, message.last_term)\n        )\n        response",
        "        )\n        response",
        1000,
        130,
    ),
    Mutant(
        "compares lengths only: the last term is not looked at",
        "log",
        "return (last_term, last_index) >= (self.last_term, self.last_index)",
        "return last_index >= self.last_index",
        300,
    ),
    Mutant(
        "counts its own vote before it is durable",
        "election",
        "        self._votes = {}\n        self._state.become_candidate()\n        self._ask()",
        "        self._state.become_candidate()\n        self._votes = {self._state.node_id: True}\n"
        "        self._ask()\n        self._count()",
        1000,
        510,
    ),
    Mutant(
        "asks for votes before its log is durable",
        "election",
        "                state.send_after_persist(\n                    VoteRequest",
        "                state.send(\n                    VoteRequest",
        300,
    ),
    Mutant(
        "commits an older term by counting",
        "leader",
        "if index <= log.commit_index or log.term_at(index) != state.term:",
        "if index <= log.commit_index:",
        100,
    ),
    Mutant(
        "counts itself before its append is durable",
        "leader",
        "        reached[state.node_id] = log.durable_index",
        "        reached[state.node_id] = log.last_index",
        100,
    ),
    Mutant(
        "accepts entries before they are durable",
        "follower",
        "        state.send_after_persist(AppendAccepted(",
        "        state.send(AppendAccepted(",
        100,
    ),
    Mutant(
        "does not truncate on conflict",
        "follower",
        "            if term_here == entry.term:",
        "            if term_here is not None:",
        100,
    ),
    Mutant(
        "truncates whatever is behind, conflict or not",
        "follower",
        "            if term_here == entry.term:\n                continue\n",
        "",
        100,
    ),
    Mutant(
        "skips the check of the previous term",
        "follower",
        "        elif log.term_at(message.previous_index) != message.previous_term:",
        "        elif log.term_at(message.previous_index) is None:",
        100,
    ),
    Mutant(
        "a follower's commit is its own last index",
        "follower",
        "        log.commit_to(min(message.commit, last_new))",
        "        log.commit_to(min(message.commit, log.last_index))",
        100,
    ),
    Mutant(
        "heartbeats carry the leader's commit, unbounded by the match",
        "leader",
        "        commit = min(state.log.commit_index, progress.match)\n",
        "        commit = state.log.commit_index\n",
        100,
    ),
    Mutant(
        "no entry at the beginning of a reign",
        "leader",
        '            self._append(EntryKind.NOTHING, b"")\n',
        "            pass\n",
        100,
    ),
    Mutant(
        "a learner counts as a voter",
        "quorum",
        "    numbers = sorted(reached.get(voter, 0) for voter in voters)",
        "    numbers = sorted(reached.values())",
        100,
    ),
    Mutant(
        "joint: only the new majority decides about commits",
        "quorum",
        "        number = min(number, majority_reached(configuration.voters_before, reached))",
        "        pass",
        300,
    ),
    Mutant(
        "joint: only the old majority decides about commits",
        "quorum",
        "        number = min(number, majority_reached(configuration.voters_before, reached))",
        "        number = majority_reached(configuration.voters_before, reached)",
        300,
    ),
    Mutant(
        "no joint configuration: voters are swapped in one step",
        "configuration",
        "        return Configuration(voters, learners, self.voters)",
        "        return Configuration(voters, learners)",
        1000,
        60,
    ),
    Mutant(
        "a change is accepted while another is under way",
        "leader",
        "        if state.configuration.is_joint or state.configurations.latest_index > state.log.commit_index:",
        "        if state.configuration.is_joint:",
        1000,
        100,
    ),
    Mutant(
        "a configuration is not rolled back with its entry",
        "state",
        "        self.configurations.on_truncate(start)",
        "        pass",
        300,
    ),
    Mutant(
        "a removed leader cannot stand though it is needed",
        "state",
        "return self.configurations.voted_since(self.log.commit_index, self.node_id)",
        "return self.configuration.votes(self.node_id)",
        2000,
        490,
    ),
    Mutant(
        "half a snapshot is installed",
        "follower",
        "            receiving.complete = message.done\n        self._answer(receiving)",
        "            receiving.complete = message.done\n"
        "            if not message.done and self._state.role is Role.FOLLOWER:\n"
        "                self._state.restore(meta)\n                self._snapshot_to_install = meta\n"
        "        self._answer(receiving)",
        100,
    ),
    Mutant(
        "a damaged snapshot is installed",
        "follower",
        "        if not intact:",
        "        if False:",
        1000,
        100,
    ),
    Mutant(
        "a snapshot replaces entries that fit to it",
        "follower",
        "        if log.term_at(meta.index) == meta.term:",
        "        if False:",
        4000,
        3890,
    ),
    Mutant(
        "chunks are kept wherever they belong",
        "follower",
        "        if message.offset == receiving.received and not",
        "        if not",
        300,
        40,
    ),
    Mutant(
        "an old report makes replaced entries durable",
        "log",
        "            batch.end_index = min(batch.end_index, end)",
        "            pass",
        1000,
    ),
    Mutant(
        "applies what is committed but not durable here",
        "log",
        "        end = LogIndex(min(self.commit_index, self.durable_index) + 1)",
        "        end = LogIndex(self.commit_index + 1)",
        100,
    ),
    Mutant(
        "reads are confirmed by the leader's own word",
        "leader",
        "        self.reads.on_quorum(quorum_reached(state.configuration, rounds))",
        "        self.reads.on_quorum(self.reads.last_round)",
        300,
    ),
    Mutant(
        "reads are served before the first own commit",
        "leader",
        "        if self.reads.has_waiting and self.knows_commit:\n            self.reads",
        "        if self.reads.has_waiting:\n            self.reads",
        300,
    ),
    Mutant(
        "a read joins a round that is already under way",
        "read_index",
        "        self._waiting.append(context)\n",
        "        if self._rounds:\n            self._rounds[-1][2].append(context)\n"
        "        else:\n            self._waiting.append(context)\n",
        1000,
    ),
    Mutant(
        "a lost append is never noticed",
        "leader",
        "        if progress.on_silence():",
        "        if False:",
        100,
    ),
    Mutant(
        "a snapshot's chunk that was lost is never asked for again",
        "snapshot",
        "        return self.stage is not Stage.WANTED and tick - self.asked_tick >= ticks_max",
        "        return False",
        300,
        20,
    ),
    Mutant(
        "the joint configuration is never left",
        "leader",
        "        if state.configuration.is_joint:\n            self._append_configuration",
        "        if False:\n            self._append_configuration",
        300,
    ),
    Mutant(
        "a stale leader is never told",
        "node",
        "                state.send_in_term(HeartbeatResponse(",
        "                str(HeartbeatResponse(",
        1000,
        300,
    ),
]


class _MutantFinder(MetaPathFinder, Loader):
    """Finds the modules of the core, one of them changed."""

    def __init__(self, mutant: Mutant | None) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "drmq.raft" and not fullname.startswith("drmq.raft."):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=fullname == "drmq.raft")

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.removeprefix("drmq.raft").removeprefix(".") or "__init__"
        source = (RAFT / f"{name}.py").read_text()
        if self._mutant is not None and self._mutant.module == name:
            assert source.count(self._mutant.right) == 1, f"the text of {self._mutant.name!r} is not found once"
            source = source.replace(self._mutant.right, self._mutant.wrong)
        exec(compile(source, f"<{module.__name__} with a bug>", "exec"), module.__dict__)


def _rests_on_the_core(module: str) -> bool:
    """Whether a module is the core, or holds parts of it and must be loaded with the bug as well."""
    return module == "drmq.raft" or module.startswith("drmq.raft.") or module == "unit.raft.invariants"


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[ModuleType]:
    """The simulation on a core with the bug in it; the real core is untouched."""
    real = {name: module for name, module in sys.modules.items() if _rests_on_the_core(name)}
    for name in real:
        del sys.modules[name]
    finder = _MutantFinder(mutant)
    sys.meta_path.insert(0, finder)
    name = "simulation_of_a_mutant"
    try:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "simulation.py")
        assert spec is not None
        assert spec.loader is not None
        simulation = importlib.util.module_from_spec(spec)
        sys.modules[name] = simulation
        spec.loader.exec_module(simulation)
        yield simulation
    finally:
        sys.meta_path.remove(finder)
        for module in [module for module in sys.modules if _rests_on_the_core(module)]:
            del sys.modules[module]
        sys.modules.pop(name, None)
        sys.modules.update(real)
        if "drmq.raft" in real:
            setattr(importlib.import_module("drmq"), "raft", real["drmq.raft"])  # noqa: B010 (mypy: a module)


def seed_that_finds(mutant: Mutant, seeds: range) -> tuple[int, str] | None:
    """The first of `seeds` at which the simulation fails, and how; None if at none."""
    with planted(mutant) as simulation:
        for seed in seeds:
            try:
                simulation.run_seed(seed)
            except Exception as error:  # noqa: BLE001 (any failure is a find)
                return seed, f"{type(error).__name__}: {error}".split("\n")[0]
    return None


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    missed = 0
    for mutant in MUTANTS:
        if word not in mutant.name:
            continue
        started = time.monotonic()
        found = seed_that_finds(mutant, range(3000))
        seconds = time.monotonic() - started
        late = found is None or found[0] >= mutant.seeds
        missed += late
        seed, how = found or (-1, "NOT FOUND")
        late_word = "LATE " if late else ""
        print(f"{late_word}seed {seed} of {mutant.seeds}, {seconds:.1f} s: {mutant.name}: {how[:100]}", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
