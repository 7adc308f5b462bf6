"""Planted bugs: each is put into DRMQ, and the simulation of the whole cluster must notice.

A simulation that never fails proves nothing. `test_planted_bugs.py` runs all of these at the seeds recorded here; after
a change of the simulator, or of the code around a planted bug, run

    python tests/unit/testing/simulation/planted_bugs.py            # all: at which seed is each found, and by what?
    python tests/unit/testing/simulation/planted_bugs.py vote 20    # those with a word in their name, in 20 seeds

What a planted bug is, and how it finds its place: `tests/support/planted_bugs.py`.

Not here, because it cannot be told from correct code: a coordinator that was deposed and does not go back to what is
committed. What it decided alone is either committed by its successor after all, or its log is cut, and cutting the log
makes the state anew as well. Nor two that take too long to find, and have tests of their own: a snapshot that was
removed comes back after a power cut, as its removal was not synced (`tests/unit/storage/test_snapshots.py`); and a
controller removes files for what it decided and is not committed (`tests/unit/broker/test_uncommitted_facts.py`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

# For those who run this file by itself: the tests are not installed.
sys.path.insert(0, str(Path(__file__).parents[3]))

from support.planted_bugs import PlantedBug, chosen, planted_on_import, try_seeds

MINUTES = 0.4
SEEDS_MAX = 200


@dataclass(frozen=True)
class SeededBug:
    """A planted bug, and the runs that show it."""

    bug: PlantedBug
    seeds: int
    """So many, from 0, must be enough to see it."""
    first: int = 0
    """Where the tests begin to look: where it was found last."""
    kind: str = "plain"
    """The kind of run that shows it soonest."""


BUGS = [
    # Durability
    SeededBug(
        PlantedBug(
            "acknowledges before the sync",
            symbol="SegmentLog.sync",
            right="""
                try:
                    file = segment.file
                    self._files.sync(file.handle)
                except OSError as error:
                    raise self._fence(f"sync failed: {error.strerror}") from error
            """,
            wrong="",
        ),
        seeds=5,
    ),
    SeededBug(
        PlantedBug(
            "acknowledges before the sync of the journal",
            symbol="Journal._write",
            right="self._files.sync(handle)",
            wrong="pass",
        ),
        seeds=5,
    ),
    SeededBug(
        PlantedBug(
            "what was cut comes back from the journal",
            symbol="SegmentLog.truncate_suffix",
            right="self._leave_journal()",
            wrong="",
        ),
        seeds=15,
        first=3,
        kind="strands",
    ),
    SeededBug(
        PlantedBug(
            "a start puts nothing back from the journal",
            symbol="replay",
            right='_put_back(files, f"{root}/{log}", entries)',
            wrong="pass",
        ),
        seeds=20,
        first=1,
    ),
    SeededBug(
        PlantedBug(
            "does not sync term and vote",
            symbol="Ledger._store",
            right="self._files.sync(file.handle)",
            wrong="",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "does not sync the directory of a new segment",
            symbol="SegmentLog.roll",
            right="self._files.sync_directory(self._directory)",
            wrong="pass",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "does not check the sum of a batch that it finds",
            symbol="walk",
            right="if crc32c(chunk[at + _CRC_START : at + size]) != header.crc:",
            wrong="if False:",
        ),
        seeds=40,
        first=14,
    ),
    SeededBug(
        PlantedBug(
            "does not check the sum of what it reads",
            symbol="Segment._checked_bytes",
            right="check(data, position, offset)",
            wrong="pass",
        ),
        seeds=20,
        kind="rot",
    ),
    SeededBug(
        PlantedBug(
            "cuts a log at the first damage, promised or not",
            symbol="_open_tail",
            right="if tail.end_offset < promised:",
            wrong="if tail.end_offset < promised and bad is None:",
        ),
        seeds=40,
        first=14,
    ),
    SeededBug(
        PlantedBug(
            "trusts an index that was torn",
            symbol="decode_body",
            right="""
                if len(body) != header.body_size or crc32c(body) != header.body_crc:
                    return None
            """,
            wrong="body = body[: header.body_size].ljust(header.body_size, bytes(1))",
        ),
        seeds=70,
        first=16,
    ),
    SeededBug(
        PlantedBug(
            "a clock that jumps ahead expires everything",
            symbol="ExpiryClock.now_ms",
            right="if at_ms - self._doubted_from_ms < min(ahead_ms, self._doubt_max_ms):",
            wrong="if False:",
        ),
        seeds=40,
        first=5,
    ),
    SeededBug(
        PlantedBug(
            "retention by size removes the segment that is written to",
            symbol="start_to_keep",
            right="is_surplus = segment.size_bytes <= surplus_bytes and segment is not active",
            wrong="is_surplus = surplus_bytes > 0",
        ),
        seeds=20,
        kind="retention",
    ),
    # Raft
    SeededBug(
        PlantedBug(
            "votes twice after a restart: the vote is sent before it is durable",
            symbol="Election.on_vote_request",
            right="state.send_after_persist(response)",
            wrong="state.send(response)",
        ),
        seeds=60,
        first=2,
    ),
    SeededBug(
        PlantedBug(
            "commits an older term by counting",
            symbol="Leader._maybe_commit",
            right="if index <= log.commit_index or log.term_at(index) != state.term:",
            wrong="if index <= log.commit_index:",
        ),
        seeds=30,
        first=17,
    ),
    SeededBug(
        PlantedBug(
            "does not truncate on conflict",
            symbol="Follower.on_append",
            right="if term_here == entry.term:",
            wrong="if term_here is not None:",
        ),
        seeds=50,
        first=2,
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
        seeds=20,
        first=2,
    ),
    SeededBug(
        PlantedBug(
            "no entry at the beginning of a reign",
            symbol="Leader.__init__",
            right='self._append(EntryKind.NOTHING, b"")',
            wrong="pass",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "skips the check of the previous term",
            symbol="Follower.on_append",
            right="elif log.term_at(message.previous_index) != message.previous_term:",
            wrong="elif log.term_at(message.previous_index) is None:",
        ),
        seeds=40,
        first=2,
        kind="strands",
    ),
    SeededBug(
        PlantedBug(
            "counts whoever has it, voter or not",
            symbol="majority_reached",
            right="numbers = sorted(reached.get(voter, 0) for voter in voters)",
            wrong="numbers = sorted(reached.values())",
        ),
        seeds=20,
        first=3,
        kind="growth",
    ),
    SeededBug(
        PlantedBug(
            "a learner votes before it has caught up",
            symbol="Leader._check_caught_up",
            right="if not self.keeps_up(progress) or not self._lacks_little(progress):",
            wrong="if False:",
        ),
        seeds=20,
        kind="growth",
    ),
    SeededBug(
        PlantedBug(
            "truncates what is committed",
            symbol="Follower.on_append",
            right="entries = entries[known:]",
            wrong="""
                log.commit_index = LogIndex(entries[0].first - 1)
                state.truncate_from(entries[0].first)
            """,
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "accepts entries before they are durable",
            symbol="Follower._accept",
            right="state.send_after_persist(AppendAccepted(",
            wrong="state.send(AppendAccepted(",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "counts itself before its append is durable",
            symbol="Leader._maybe_commit",
            right="reached[state.node_id] = log.durable_index",
            wrong="reached[state.node_id] = log.last_index",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "after a crash a half-installed snapshot is opened as if it were whole",
            symbol="PartitionTable.open",
            right="install = snapshots.load_latest(INSTALL_SNAPSHOT)",
            wrong="install = None",
        ),
        seeds=45,
        first=13,
        kind="installs",
    ),
    SeededBug(
        PlantedBug(
            "takes the first part of a snapshot for all of it",
            symbol="Follower.on_snapshot_chunk",
            right="""
                ChunkToSave(message.sender, meta, message.offset, message.data, message.done))
                receiving.received += len(message.data)
                receiving.complete = message.done
            """,
            wrong="""
                ChunkToSave(message.sender, meta, message.offset, message.data, True))
                receiving.received += len(message.data)
                receiving.complete = True
            """,
        ),
        seeds=20,
        kind="installs",
    ),
    SeededBug(
        PlantedBug(
            "a snapshot that was installed is installed again at the next start",
            symbol="MessageState.finish_snapshot",
            right="self.snapshots.remove_after(INSTALL_SNAPSHOT, Offset(-1))",
            wrong="",
        ),
        seeds=20,
        first=2,
        kind="installs",
    ),
    # Overload
    SeededBug(
        PlantedBug(
            "catches up all ticks that it missed in one pass",
            symbol="GroupHost._tick",
            right="""
                self._was_late = is_late and not self._was_late
                if not self._was_late:
                    self._tick_count += 1
                    self._pass.add(self._tick_all(list(self._awake.items())))
            """,
            wrong="""
                for _ in range(1 + min(int(late_s / self._tick_s), 64)):
                    self._tick_count += 1
                    for _ in self._tick_all(list(self._awake.items())):
                        pass
            """,
        ),
        seeds=5,
        kind="starved",
    ),
    # Visibility
    SeededBug(
        PlantedBug(
            "a leader that was replaced says where the log ends",
            symbol="Lookups._find",
            right='await durable(partition.confirm_leadership, "the end of the log")',
            wrong="",
        ),
        seeds=20,
        first=7,
        kind="strands",
    ),
    SeededBug(
        PlantedBug(
            "the high watermark is the end of the leader's own disk",
            symbol="Partition.on_flushed",
            right="if self._write_waiters:",
            wrong="""
                if self.is_serving:
                    self.high_watermark = max(self.high_watermark, flushed_offset)
                if self._write_waiters:
            """,
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "a follower takes the leader's commit, whatever its own log holds",
            symbol="Leader._send_heartbeat",
            right="commit = min(state.log.commit_index, progress.match)",
            wrong="commit = state.log.commit_index",
        ),
        seeds=20,
        kind="strands",
    ),
    SeededBug(
        PlantedBug(
            "a follower's high watermark begins anew with every leader",
            symbol="Partition.on_leadership",
            right="elif was_leader and not self.is_leader:",
            wrong="""
                elif not self.is_leader:
                    self.high_watermark = self.log.start_offset
                if was_leader and not self.is_leader:
            """,
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "a follower shows what is not committed",
            symbol="Read._read_one",
            right="visible = partition.high_watermark",
            wrong="visible = partition.high_watermark if partition.is_leader else partition.log.flushed_offset",
        ),
        seeds=20,
        first=7,
    ),
    # Producers
    SeededBug(
        PlantedBug(
            "remembers one batch of each producer",
            symbol="ProducerTable.apply",
            right="if len(producer.batches) > BATCHES_KEPT:",
            wrong="if len(producer.batches) > 1:",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "a retry is out of order",
            symbol="ProducerTable.find_repeat",
            right="""
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
            """,
            wrong="pass",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "followers do not learn about producers",
            symbol="MessageState.on_appended",
            right="partition.producers.apply(header, now_ms)",
            wrong="pass",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "a log that begins later forgets the producers of what was before",
            symbol="Maintenance._drop_before.producers_at_start",
            right="return table.to_bytes()",
            wrong='return b""',
        ),
        seeds=20,
        first=7,
        kind="retention",
    ),
    # Topics
    SeededBug(
        PlantedBug(
            "a deletion is confirmed before it is committed",
            symbol="TopicService.delete_found",
            right='await self._metadata.decide(delete, f"the deletion of {what}")',
            wrong="self._metadata.append(delete(self._metadata.catalog))",
        ),
        seeds=20,
        first=3,
        kind="topics",
    ),
    SeededBug(
        PlantedBug(
            "a node keeps what it has of a deleted topic",
            symbol="Assignments._settle",
            right="elif topic_id in catalog.deleted:",
            wrong="elif False:",
        ),
        seeds=20,
        kind="topics",
    ),
    # Nodes
    SeededBug(
        PlantedBug(
            "a move is reported before the group has its new members",
            symbol="Assignments.change_members",
            right="if _has_members(slot, catalog.members(assignment, assignment.target)):",
            wrong="if True:",
        ),
        seeds=20,
        first=1,
        kind="growth",
    ),
    # Coordinators
    SeededBug(
        PlantedBug(
            "a machine comes back without what its snapshot says",
            symbol="MachineState._replayed",
            right="replay_batches(stored.body, draft.replay, Offset(0))",
            wrong="",
        ),
        seeds=20,
        first=1,
        kind="any",
    ),
    SeededBug(
        PlantedBug(
            "a machine comes back without what its log says",
            symbol="PartitionTable._assemble",
            right="partition.high_watermark = partition.acked_offset = state.applied_offset",
            wrong="partition.high_watermark = partition.acked_offset = state.applied_offset = opened.end_offset",
        ),
        seeds=20,
    ),
    SeededBug(
        PlantedBug(
            "a commit is taken from whoever was a member once",
            symbol="_commit_error",
            right="""
                error = member_error(group, request.member_id, request.instance_id)
                if error is not ErrorCode.NONE:
                    return error
                if request.generation != group.generation:
                    return ErrorCode.ILLEGAL_GENERATION
            """,
            wrong="",
        ),
        seeds=20,
        kind="groups",
    ),
    SeededBug(
        PlantedBug(
            "groups are known to their coordinator alone",
            symbol="Rounds.store",
            right="turn.records.append(group.to_metadata())",
            wrong="pass",
        ),
        seeds=20,
        kind="groups",
    ),
    SeededBug(
        PlantedBug(
            "every member is given what one of them owns",
            symbol="Rounds.assign",
            right='member.assignment = assignments.get(member.member_id, b"")',
            wrong="member.assignment = max(assignments.values())",
        ),
        seeds=20,
        kind="groups",
    ),
    SeededBug(
        PlantedBug(
            "an offset commit is answered before it is replicated",
            symbol="Coordinator._finish",
            right="self.log.when_durable(partial(self._on_durable, records, answers, callbacks, token))",
            wrong="self._on_durable(records, answers, callbacks, token, ErrorCode.NONE)",
        ),
        seeds=50,
        first=6,
    ),
]


def _is_ours(name: str) -> bool:
    return name == "drmq" or name.startswith("drmq.")


@contextmanager
def planted(bug: PlantedBug) -> Iterator[ModuleType]:
    """The simulation on a DRMQ with the bug in it; the real one is untouched."""
    with planted_on_import(bug, _is_ours):
        yield importlib.import_module("drmq.testing.simulation")


def seed_that_finds(case: SeededBug, seeds: range) -> tuple[int, str] | None:
    """The first of `seeds` at which the simulation fails, and how; None if at none."""
    with planted(case.bug) as simulation:
        for seed in seeds:
            result = simulation.simulate(seed, 3, MINUTES, kind=case.kind)
            if result.violation is not None:
                return seed, str(result.violation).split("\n", 1)[0]
    return None


def main(words: list[str]) -> int:
    count = int(words[1]) if len(words) > 1 else SEEDS_MAX
    return try_seeds(chosen(BUGS, words[:1]), lambda case: seed_that_finds(case, range(count)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
