"""Replicas of stopped nodes compared byte by byte.

Consensus promises that the committed part of a log is the same on all replicas. Clients see one replica at a time, so
a divergence stays hidden until leadership moves; the files show it at once. Batches are compared, not files: where
one replica begins a new segment another need not.

Read with `drmq.server.segments`, which opens nothing for writing, so that looking does not repair.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

from drmq.server.segments import Damage, find_segments, read_batches


@dataclass
class LogCopy:
    """One node's copy of one log: every batch as its first offset, its end and a digest of its bytes."""

    start: int
    batches: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)

    @property
    def end(self) -> int:
        return max((end for end, _ in self.batches.values()), default=self.start)


def read_copies(data_dir: Path) -> dict[str, LogCopy]:
    """Every log in a data directory by its path in there, which is the same on all nodes."""
    found: dict[str, LogCopy] = {}
    if not data_dir.exists():
        return found
    # Copies that were damaged are kept for people to look at.
    segments = [
        path for path in find_segments(data_dir) if ".deleted" not in str(path) and path.parent.suffix != ".lost"
    ]
    for directory, paths in groupby(segments, key=lambda path: path.parent):
        row = list(paths)
        copy = LogCopy(int(row[0].stem))
        for path in row:
            for batch in read_batches(path):
                if isinstance(batch, Damage):
                    # A node that was killed may have a torn tail, on its last segment only.
                    if not (batch.is_torn_tail and path == row[-1]):
                        copy.damage.append(f"{path} at {batch.position}: {batch.problem}")
                    break
                if not batch.crc_ok:
                    copy.damage.append(f"{path} at {batch.position}: the checksum does not match")
                header = batch.header
                copy.batches[header.base_offset] = (header.next_offset, hashlib.blake2b(batch.data).digest())
        found[str(directory.relative_to(data_dir))] = copy
    return found


def differences(data_dirs: Mapping[int, Path], needed: Mapping[tuple[str, int], int] | None = None) -> list[str]:
    """How the replicas on these nodes differ, where two or more of them have the same offsets.

    `needed` says up to where each topic's partition must reach on all its replicas: what was acknowledged.
    """
    copies = {node_id: read_copies(path) for node_id, path in data_dirs.items()}
    by_log: dict[str, dict[int, LogCopy]] = defaultdict(dict)
    for node_id, logs in copies.items():
        for name, copy in logs.items():
            by_log[name][node_id] = copy
    problems = []
    for name, holders in sorted(by_log.items()):
        problems += [f"{name} on node {node_id}: {text}" for node_id, copy in holders.items() for text in copy.damage]
        problems += _compare(name, holders)
    for (topic, partition), end in (needed or {}).items():
        holders = _holders(by_log, topic, partition)
        ends = {node_id: copy.end for node_id, copy in holders.items()}
        if not ends or min(ends.values()) < end:
            problems.append(f"{topic}-{partition} was acknowledged up to {end}, and its replicas end at {ends}")
    return problems


def _holders(by_log: Mapping[str, dict[int, LogCopy]], topic: str, partition: int) -> dict[int, LogCopy]:
    for name, holders in by_log.items():
        parts = name.split("/")
        if parts[0] == "topics" and parts[1].rpartition(".")[0] == topic and parts[2] == str(partition):
            return holders
    return {}


def _compare(name: str, holders: Mapping[int, LogCopy]) -> Iterable[str]:
    """At most one difference per pair of neighbours: the first says all."""
    nodes = sorted(holders)
    for one, other in pairwise(nodes):
        first, second = holders[one], holders[other]
        low, high = max(first.start, second.start), min(first.end, second.end)
        row = sorted(base for base in first.batches.keys() | second.batches.keys() if low <= base < high)
        for base in row:
            mine, theirs = first.batches.get(base), second.batches.get(base)
            if mine != theirs:
                yield (
                    f"{name}: nodes {one} and {other} differ at offset {base}: "
                    f"{_shown(mine)} against {_shown(theirs)} (both have {low} to {high})"
                )
                break


def _shown(batch: tuple[int, bytes] | None) -> str:
    return "no batch begins there" if batch is None else f"a batch up to {batch[0]} ({batch[1].hex()[:12]})"
