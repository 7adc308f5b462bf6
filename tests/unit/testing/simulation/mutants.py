"""Planted bugs: each is put into a copy of DRMQ, and the simulation of the whole cluster must notice.

A simulation that never fails proves nothing. `test_mutants.py` runs all of these at the seeds recorded here; after a
change of the simulator, or of the code around a planted bug, run

    python tests/unit/testing/simulation/mutants.py            # all: at which seed is each found, and by what?
    python tests/unit/testing/simulation/mutants.py vote 20    # those whose name contains a word, in 20 seeds at most

A mutant whose text is no longer in the source is reported too: adapt it.

Not here, because it cannot be told from correct code: a coordinator that was deposed and does not go back to what is
committed. What it decided alone is either committed by its successor after all, or its log is cut, and cutting the log
makes the state anew as well. Nor two that take too long to find, and have tests of their own: a snapshot that was
removed comes back after a power cut, as its removal was not synced (`tests/unit/storage/test_snapshots.py`); and a
controller removes files for what it decided and is not committed (`tests/unit/broker/test_uncommitted_facts.py`).
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

SOURCE = Path(__file__).resolve().parents[4] / "src"
MINUTES = 0.4
SEEDS_MAX = 200


class Mutant(NamedTuple):
    """A wrong line in place of a right one."""

    name: str
    module: str
    """Below `drmq`."""
    right: str
    wrong: str
    seeds: int
    """So many, from 0, must be enough to see it."""
    first: int = 0
    """Where the tests begin to look: where it was found last."""
    kind: str = "plain"
    """The kind of run that shows it soonest."""


MUTANTS = [
    # Durability
    Mutant(
        "acknowledges before the sync",
        "storage.segment_log",
        "        try:\n            self._files.sync(segment.file.handle)\n        except OSError as error:\n"
        '            raise self._fence(f"sync failed: {error.strerror}") from error\n        segment.flushed_bytes',
        "        segment.flushed_bytes",
        5,
    ),
    Mutant(
        "acknowledges before the sync of the journal",
        "storage.journal",
        "            self._files.sync(handle)\n",
        "            pass\n",
        5,
    ),
    Mutant(
        "what was cut comes back from the journal",
        "storage.segment_log",
        "        self._leave_journal()\n        view = self._view\n",
        "        view = self._view\n",
        15,
        3,
        kind="strands",
    ),
    Mutant(
        "a start puts nothing back from the journal",
        "storage.journal",
        '            _put_back(files, f"{root}/{log}", entries)\n',
        "            pass\n",
        20,
        1,
    ),
    Mutant(
        "does not sync term and vote",
        "storage.ledger",
        "            self._files.write(self._file.handle, (record,), self._end)\n"
        "            self._files.sync(self._file.handle)\n",
        "            self._files.write(self._file.handle, (record,), self._end)\n",
        20,
    ),
    Mutant(
        "does not sync the directory of a new segment",
        "storage.segment_log",
        "            self._files.sync_directory(self._directory)\n        except OSError as error:\n"
        '            raise self._fence(f"sync failed: {error.strerror}") from error\n        try:\n'
        "            old.save_index()",
        "            pass\n        except OSError as error:\n"
        '            raise self._fence(f"sync failed: {error.strerror}") from error\n        try:\n'
        "            old.save_index()",
        20,
    ),
    Mutant(
        "does not check the sum of a batch that it finds",
        "storage.walk",
        "            if crc32c(chunk[at + _CRC_START : at + size]) != header.crc:\n",
        "            if False:\n",
        40,
        14,
    ),
    Mutant(
        "does not check the sum of what it reads",
        "storage.segment",
        "            check(data, position, offset)\n",
        "            pass\n",
        20,
        kind="rot",
    ),
    Mutant(
        "cuts a log at the first damage, promised or not",
        "storage.recovery",
        "    if tail.end_offset < promised:\n",
        "    if tail.end_offset < promised and bad is None:\n",
        40,
        14,
    ),
    Mutant(
        "trusts an index that was torn",
        "storage.index",
        "    if len(body) != header.body_size or crc32c(body) != header.body_crc:\n        return None\n",
        "    body = body[: header.body_size].ljust(header.body_size, bytes(1))\n",
        70,
        46,
    ),
    Mutant(
        "a clock that jumps ahead expires everything",
        "broker.clock",
        "            if at_ms - self._doubted_from_ms < min(ahead_ms, self._doubt_max_ms):\n",
        "            if False:\n",
        40,
        29,
    ),
    Mutant(
        "retention by size removes the segment that is written to",
        "storage.retention",
        "        is_surplus = segment.size_bytes <= surplus_bytes and segment is not active\n",
        "        is_surplus = surplus_bytes > 0\n",
        20,
        kind="retention",
    ),
    # Raft
    Mutant(
        "votes twice after a restart: the vote is sent before it is durable",
        "raft.election",
        "        state.send_after_persist(response)",
        "        state.send(response)",
        60,
        59,
    ),
    Mutant(
        "commits an older term by counting",
        "raft.leader",
        "if index <= log.commit_index or log.term_at(index) != state.term:",
        "if index <= log.commit_index:",
        30,
        17,
    ),
    Mutant(
        "does not truncate on conflict",
        "raft.follower",
        "            if term_here == entry.term:",
        "            if term_here is not None:",
        50,
        2,
    ),
    Mutant(
        "truncates whatever is behind, conflict or not",
        "raft.follower",
        "            if term_here == entry.term:\n                continue\n",
        "",
        20,
        2,
    ),
    Mutant(
        "no entry at the beginning of a reign",
        "raft.leader",
        '            self._append(EntryKind.NOTHING, b"")\n',
        "            pass\n",
        20,
    ),
    Mutant(
        "skips the check of the previous term",
        "raft.follower",
        "        elif log.term_at(message.previous_index) != message.previous_term:",
        "        elif log.term_at(message.previous_index) is None:",
        40,
        15,
        kind="strands",
    ),
    Mutant(
        "counts whoever has it, voter or not",
        "raft.quorum",
        "    numbers = sorted(reached.get(voter, 0) for voter in voters)",
        "    numbers = sorted(reached.values())",
        40,
        1,
    ),
    Mutant(
        "a learner votes before it has caught up",
        "raft.leader",
        "        if not self.keeps_up(progress) or not self._lacks_little(progress):\n",
        "        if False:\n",
        20,
        kind="growth",
    ),
    Mutant(
        "truncates what is committed",
        "raft.follower",
        "            entries = entries[known:]\n",
        "            log.commit_index = LogIndex(entries[0].first - 1)\n"
        "            state.truncate_from(entries[0].first)\n",
        20,
    ),
    Mutant(
        "accepts entries before they are durable",
        "raft.follower",
        "        state.send_after_persist(AppendAccepted(",
        "        state.send(AppendAccepted(",
        20,
    ),
    Mutant(
        "counts itself before its append is durable",
        "raft.leader",
        "        reached[state.node_id] = log.durable_index",
        "        reached[state.node_id] = log.last_index",
        20,
    ),
    Mutant(
        "after a crash a half-installed snapshot is opened as if it were whole",
        "broker.partitions.partition_table",
        "        install = snapshots.load_latest(INSTALL_SNAPSHOT)\n",
        "        install = None\n",
        20,
        13,
        kind="installs",
    ),
    Mutant(
        "takes the first part of a snapshot for all of it",
        "raft.follower",
        "ChunkToSave(message.sender, meta, message.offset, message.data, message.done))\n"
        "            receiving.received += len(message.data)\n            receiving.complete = message.done\n",
        "ChunkToSave(message.sender, meta, message.offset, message.data, True))\n"
        "            receiving.received += len(message.data)\n            receiving.complete = True\n",
        20,
        kind="installs",
    ),
    Mutant(
        "a snapshot that was installed is installed again at the next start",
        "broker.partitions.derived_state",
        "        self.snapshots.save(BASE_SNAPSHOT, offset, pack_snapshot(meta, data))\n"
        "        self.snapshots.remove_after(INSTALL_SNAPSHOT, Offset(-1))\n",
        "        self.snapshots.save(BASE_SNAPSHOT, offset, pack_snapshot(meta, data))\n",
        20,
        13,
        kind="installs",
    ),
    # Visibility
    Mutant(
        "a leader that was replaced says where the log ends",
        "kafka.list_offsets",
        '        await durable(partition.confirm_leadership, "the end of the log")\n',
        "",
        20,
        7,
        kind="strands",
    ),
    Mutant(
        "the high watermark is the end of the leader's own disk",
        "broker.partitions.partition",
        "    def on_flushed(self, flushed_offset: Offset) -> None:\n",
        "    def on_flushed(self, flushed_offset: Offset) -> None:\n"
        "        if self.is_serving:\n            self.high_watermark = max(self.high_watermark, flushed_offset)\n",
        20,
    ),
    Mutant(
        "a follower takes the leader's commit, whatever its own log holds",
        "raft.leader",
        "        commit = min(state.log.commit_index, progress.match)\n",
        "        commit = state.log.commit_index\n",
        40,
        37,
    ),
    Mutant(
        "a follower's high watermark begins anew with every leader",
        "broker.partitions.partition",
        "        elif was_leader and not self.is_leader:\n",
        "        elif not self.is_leader:\n            self.high_watermark = self.log.start_offset\n"
        "        if was_leader and not self.is_leader:\n",
        20,
    ),
    Mutant(
        "a follower shows what is not committed",
        "kafka.fetch",
        "        visible = partition.high_watermark\n",
        "        visible = partition.high_watermark if partition.is_leader else partition.log.flushed_offset\n",
        20,
        7,
    ),
    # Producers
    Mutant(
        "remembers one batch of each producer",
        "broker.partitions.producer_table",
        "            if len(producer.batches) > BATCHES_KEPT:\n",
        "            if len(producer.batches) > 1:\n",
        20,
    ),
    Mutant(
        "a retry is out of order",
        "broker.partitions.producer_table",
        "            if batch.first_sequence == first and batch.last_sequence == last:\n                return batch\n",
        "            pass\n",
        20,
    ),
    Mutant(
        "followers do not learn about producers",
        "broker.partitions.derived_state",
        "                partition.producers.apply(header, now_ms)\n",
        "                pass\n",
        20,
    ),
    Mutant(
        "a log that begins later forgets the producers of what was before",
        "broker.maintenance.housekeeping",
        "            return table.to_bytes()\n",
        '            return b""\n',
        20,
        7,
        kind="retention",
    ),
    # Topics
    Mutant(
        "a deletion is confirmed before it is committed",
        "broker.services.topics",
        '        await self._metadata.decide(delete, f"the deletion of {what}")\n',
        "        self._metadata.append(delete(self._metadata.catalog))\n",
        20,
        3,
        kind="topics",
    ),
    Mutant(
        "a node keeps what it has of a deleted topic",
        "broker.cluster.assignments",
        "            if topic_id in catalog.deleted:\n",
        "            if False:\n",
        20,
        kind="topics",
    ),
    # Nodes
    Mutant(
        "a move is reported before the group has its new members",
        "broker.cluster.assignments",
        "if _has_members(slot, catalog.members(assignment, assignment.target)):",
        "if True:",
        20,
        1,
        kind="growth",
    ),
    # Coordinators
    Mutant(
        "a machine comes back without what its snapshot says",
        "broker.partitions.derived_state",
        "        replay_batches(stored.body, draft.replay, Offset(0))\n",
        "",
        20,
        1,
        kind="any",
    ),
    Mutant(
        "a machine comes back without what its log says",
        "broker.partitions.partition_table",
        "            partition.high_watermark = partition.acked_offset = state.applied_offset\n",
        "            partition.high_watermark = partition.acked_offset = state.applied_offset = opened.end_offset\n",
        20,
    ),
    Mutant(
        "a commit is taken from whoever was a member once",
        "groups.commits",
        "    error = member_error(group, request.member_id, request.instance_id)\n"
        "    if error is not ErrorCode.NONE:\n        return error\n"
        "    if request.generation != group.generation:\n        return ErrorCode.ILLEGAL_GENERATION\n",
        "",
        20,
        kind="groups",
    ),
    Mutant(
        "groups are known to their coordinator alone",
        "groups.classic.rounds",
        "        turn.records.append(group.to_metadata())\n",
        "        pass\n",
        20,
        kind="groups",
    ),
    Mutant(
        "every member is given what one of them owns",
        "groups.classic.rounds",
        '            member.assignment = assignments.get(member.member_id, b"")\n',
        "            member.assignment = max(assignments.values())\n",
        20,
        kind="groups",
    ),
    Mutant(
        "an offset commit is answered before it is replicated",
        "broker.coordination.coordinator",
        "            self.log.when_durable(partial(self._on_durable, records, answers, callbacks, self._token))\n",
        "            self._on_durable(records, answers, callbacks, self._token, ErrorCode.NONE)\n",
        50,
        40,
    ),
]


class _MutantFinder(MetaPathFinder, Loader):
    """Finds the one module that is to be changed."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = f"drmq.{mutant.module}"
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._name else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        source = (SOURCE / f"{self._name.replace('.', '/')}.py").read_text()
        right = self._mutant.right
        assert source.count(right) == 1, f"{self._mutant.name!r}: its text is there {source.count(right)} times"
        source = source.replace(right, self._mutant.wrong)
        exec(compile(source, f"<{module.__name__} with a bug>", "exec"), module.__dict__)


def _is_ours(name: str) -> bool:
    return name == "drmq" or name.startswith("drmq.")


@contextmanager
def planted(mutant: Mutant) -> Iterator[ModuleType]:
    """The simulation on a DRMQ with the bug in it; the real one is untouched."""
    real = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    for name in real:
        del sys.modules[name]
    finder = _MutantFinder(mutant)
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module("drmq.testing.simulation")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(real)


def seed_that_finds(mutant: Mutant, seeds: range) -> tuple[int, str] | None:
    """The first of `seeds` at which the simulation fails, and how; None if at none."""
    with planted(mutant) as simulation:
        for seed in seeds:
            result = simulation.simulate(seed, 3, MINUTES, kind=mutant.kind)
            if result.violation is not None:
                return seed, str(result.violation).split("\n", 1)[0]
    return None


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    count = int(sys.argv[2]) if len(sys.argv) > 2 else SEEDS_MAX
    missed = 0
    for mutant in MUTANTS:
        if word not in mutant.name:
            continue
        started = time.process_time()
        try:
            found = seed_that_finds(mutant, range(count))
        except AssertionError as error:
            found = (-1, f"CANNOT BE PLANTED: {error}")
        seconds = time.process_time() - started
        late = found is None or not 0 <= found[0] < mutant.seeds
        missed += late
        seed, how = found or (-1, "NOT FOUND")
        late_word = "LATE " if late else ""
        print(f"{late_word}seed {seed} of {mutant.seeds}, {seconds:.1f} s: {mutant.name}: {how[:160]}", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
