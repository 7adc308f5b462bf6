"""Damaged files, on one node at a time: K7 (records), K8 (derived files), K9 (promises).

The files of one node are a minority, so only that node may be affected. It must detect the damage, name the file, and
neither serve the damaged data nor vote with it. A damaged replica is rebuilt from the others automatically; a node that
has lost its identity or its metadata gets an empty disk from the scenario, as from an operator.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from chaos.run import Run
from drmq.records import HEADER_SIZE
from drmq.server.segments import FoundBatch, read_batches
from support.checked import Place
from support.cluster import NodeProcess
from support.journal import empty_journal
from support.polling import eventually
from support.raw_client import KAFKA_STORAGE_ERROR, RawClient, RequestFailed

LENGTH_AT, CRC_AT = range(8, 12), range(17, 21)
"""Bytes of a batch's header."""
RECORD_KINDS = ("last", "middle", "length", "crc")
FIRST_RECORD_AT = range(520, 560)
"""Bytes of a ledger's first record."""
BATCHES_MIN = 4
_METADATA = "internal/__cluster_metadata/0"


# ---- files --------------------------------------------------------------------------------------


def flip(path: Path, position: int, chance: random.Random) -> int:
    """Turn one bit of a file over, on the disk as in the kernel's memory; the byte that was there."""
    old = path.read_bytes()[position]
    put(path, position, old ^ (1 << chance.randrange(8)))
    return old


def put(path: Path, position: int, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([byte]))
        file.flush()
        os.fsync(file.fileno())
        # Bits rot on disks. What the kernel still has in memory would hide that from a running node.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def flip_anywhere(path: Path, chance: random.Random) -> None:
    flip(path, chance.randrange(path.stat().st_size), chance)


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def clear(path: Path, chance: random.Random) -> None:
    os.truncate(path, 0)


def log_directory(run: Run, place: Place, node_id: int) -> Path:
    """Where a node has a partition."""
    pattern = f"topics/{place.topic}.*/{place.partition}"
    (found,) = (path for path in run.cluster[node_id].data_dir.glob(pattern) if ".deleted" not in str(path))
    return found


class Spot(NamedTuple):
    """Where a segment was damaged, and which offset is there."""

    path: Path
    offset: int
    text: str
    position: int
    byte: int
    """What was there."""

    @property
    def is_sound(self) -> bool:
        """Whether the byte is as it was, or the file gone, or another one without damage.

        A batch whose length is damaged hides all that follow: it is not enough that those which are found are sound.
        """
        try:
            if self.path.read_bytes()[self.position : self.position + 1] == bytes([self.byte]):
                return True
            return all(isinstance(batch, FoundBatch) and batch.crc_ok for batch in read_batches(self.path))
        except FileNotFoundError:
            # It may disappear at any moment: the copy is being replaced.
            return True

    def put_right(self) -> None:
        put(self.path, self.position, self.byte)


def damage_records(
    run: Run, place: Place, node_id: int, kind: str, *, is_sealed: bool, sizes: Mapping[Path, int] | None = None
) -> Spot:
    """Turn a bit of a batch over: in its records, its length or its checksum; one that lies within `sizes`."""
    segments = sorted(log_directory(run, place, node_id).glob("*.log"))
    wanted = segments[:-1] if is_sealed else segments[-1:]
    found = {path: _batches(path, None if sizes is None else sizes.get(path, 0)) for path in segments}
    full = [path for path in segments if len(found[path]) >= BATCHES_MIN]
    path = run.chance.choice([path for path in wanted if path in full] or full)
    batches = found[path]
    batch = batches[-1] if kind == "last" else run.chance.choice(batches[: max(1, len(batches) // 2)])
    if kind == "length":
        at = run.chance.choice(LENGTH_AT)
    elif kind == "crc":
        at = run.chance.choice(CRC_AT)
    else:
        at = run.chance.randrange(HEADER_SIZE, batch.header.size)
    byte = flip(path, batch.position + at, run.chance)
    text = f"{kind} of {place.topic}-{place.partition} on node {node_id}, offset {batch.header.base_offset}"
    run.say(f"a bit is flipped: {text}, byte {at} of its batch ({path.name}, {len(batches)} batches)")
    return Spot(path, batch.header.base_offset, text, batch.position + at, byte)


def _batches(path: Path, size: int | None = None) -> list[FoundBatch]:
    found = [batch for batch in read_batches(path) if isinstance(batch, FoundBatch)]
    return [batch for batch in found if size is None or batch.position + batch.header.size <= size]


# ---- K7 -----------------------------------------------------------------------------------------


def records_of_a_stopped_node(run: Run) -> None:
    """A bit of a segment is flipped while its node is down: the node finds it at the start or when it is read."""
    run.expected += ["is stopped"]
    for number, kind in enumerate(RECORD_KINDS):
        place = run.place()
        node_id = run.leader(place) if number % 2 else run.follower(place)
        enough_batches(run, place, node_id)
        node = run.cluster[node_id]
        if run.chance.random() < 0.5:
            run.kill(node_id)
            empty_journal(node.data_dir)
        else:
            run.say(f"stop {node_id} cleanly")
            node.terminate()
        spot = damage_records(run, place, node_id, kind, is_sealed=number >= 2)
        said_before = len(node.log_text())
        run.start(node_id)
        node.wait_ready(60)
        run.served()
        noticed(run, place, node_id, spot, said_before)


def records_of_a_running_node(run: Run) -> None:
    """A bit of a segment is flipped under a running node: it is found when it is read.

    Only in data that the current process has not written: a process trusts what it wrote itself as long as the kernel
    has it in memory, and the kernel may read ahead and get it again from a disk that has changed it.
    """
    run.expected += ["is stopped"]
    for number, kind in enumerate(RECORD_KINDS):
        place = run.place()
        node_id = run.leader(place) if number % 2 else run.follower(place)
        enough_batches(run, place, node_id)
        run.say(f"restart {node_id} cleanly")
        run.cluster[node_id].terminate()
        sizes = {path: path.stat().st_size for path in log_directory(run, place, node_id).glob("*.log")}
        run.start(node_id)
        run.whole()
        said_before = len(run.cluster[node_id].log_text())
        spot = damage_records(run, place, node_id, kind, is_sealed=True, sizes=sizes)
        run.served()
        noticed(run, place, node_id, spot, said_before)


def enough_batches(run: Run, place: Place, node_id: int) -> None:
    """Until there is more than one segment with enough batches in it, where segments are small."""
    run.served()
    directory = log_directory(run, place, node_id)
    wanted = 2 if place.topic.startswith("small") else 1
    eventually(
        lambda: [path for path in directory.glob("*.log") if len(_batches(path)) >= BATCHES_MIN],
        lambda found: len(found) >= wanted,
        what=f"segments of {place}",
        timeout_s=60.0,
    )


def noticed(run: Run, place: Place, node_id: int, spot: Spot, said_before: int) -> None:
    """The node has found the damage or finds it on a read; then it rebuilds its replica from the others."""

    def said() -> str:
        return run.cluster[node_id].log_text()[said_before:]

    if "is stopped" in said():
        assert spot.path.name in said(), f"the damage is not named: {said()[-1_000:]}"
        run.say("found at the start; the partition is stopped on this node")
    elif "cut a torn tail" in said() and spot.is_sound:
        run.say("found at the start, behind what was promised; cut and copied again")
        run.whole()
        return
    else:
        read_damaged(run, place, node_id, spot)
    eventually(lambda: spot.is_sound, timeout_s=60.0, what=f"{spot.text}: a new copy")
    run.whole()


def read_damaged(run: Run, place: Place, node_id: int, spot: Spot) -> None:
    """Make the node the leader, and read the damaged record: it must refuse, and never send it."""
    if not run.is_alone:
        run.lead(place, node_id)
    with RawClient(run.cluster[node_id].bootstrap) as client:
        try:
            got = client.fetch(place.topic, spot.offset, partition=place.partition)
        except RequestFailed as refused:
            if refused.code != KAFKA_STORAGE_ERROR:
                raise
            run.say("found when it was read: KAFKA_STORAGE_ERROR")
            return
        except (IndexError, ValueError) as garbled:  # what is damaged may be read as anything
            raise AssertionError(f"{spot.text} is damaged, and was sent: {garbled!r}") from garbled
    raise AssertionError(f"{spot.text} is damaged, and was read: {str(got)[:300]}")


# ---- K8 -----------------------------------------------------------------------------------------


def hints_damaged(run: Run) -> None:
    """Indexes, producers' tables and notes on what was flushed are flipped or cut: all is made again from the log."""
    for damage in (flip_anywhere, cut, clear):
        for is_leader in (True, False):
            place = run.place()
            node_id = run.leader(place) if is_leader else run.follower(place)
            run.served()
            run.say(f"stop {node_id} cleanly")
            run.cluster[node_id].terminate()
            # After a clean shutdown, a node has written all of them.
            hints = [
                path
                for directory in run.cluster[node_id].data_dir.glob("topics/*/*")
                for pattern in ("*.index", "producers-*.snapshot", "flushed")
                for path in directory.glob(pattern)
                if path.stat().st_size
            ]
            assert any(path.suffix == ".snapshot" for path in hints), "no producers' table was written"
            for path in hints:
                damage(path, run.chance)
            run.say(f"{damage.__name__}: {len(hints)} indexes, producers' tables and notes of node {node_id}")
            run.start(node_id)
            run.whole()


# ---- K9 -----------------------------------------------------------------------------------------


def promises_damaged(run: Run) -> None:
    """Votes, identity or metadata are flipped, cut or empty: the node does not start, or take part, and says why."""
    run.expected += ["is stopped", " CRITICAL "]
    place = run.place()
    node_id = run.follower(place)
    node = run.cluster[node_id]
    run.kill(node_id)
    empty_journal(node.data_dir)
    refuses_whatever_is_damaged(run, node_id)
    for damage in (flip_first_record, clear):
        # Here the node starts, and must not get its intact files back: by now they are an older copy.
        path = log_directory(run, place, node_id) / "ledger"
        damage(path, run.chance)
        run.say(f"{damage.__name__}: {path.relative_to(node.data_dir)} of node {node_id}")
        named = partial(_names, node, len(node.log_text()), f"is stopped: {path.parent}")
        run.start(node_id)
        eventually(named, what=f"{path} is named")
        run.whole()
        run.kill(node_id)
    # The last one is not repaired: its promises are lost, so the node comes back as a new member.
    flip_first_record(node.data_dir / _METADATA / "ledger", run.chance)
    refuses(run, node_id, node.data_dir / _METADATA / "ledger")
    run.say(f"wipe {node_id}")
    node.wipe()
    run.start(node_id)
    run.whole()


def refuses_whatever_is_damaged(run: Run, node_id: int) -> None:
    """Damage what a node, which must not run, cannot do without, one after the other; each is put right again."""
    cases = [("drmq.json", flip_anywhere), ("drmq.json", clear)]
    cases += [(f"{_METADATA}/ledger", damage) for damage in (flip_first_record, cut_first_record, clear)]
    cases += [(f"{_METADATA}/*.log", flip_anywhere), (f"{_METADATA}/*.log", clear)]
    run.chance.shuffle(cases)
    node = run.cluster[node_id]
    sound = node.data_dir.with_name(f"{node.data_dir.name}.sound")
    for pattern, damage in cases:
        shutil.copytree(node.data_dir, sound)
        path = sorted(node.data_dir.glob(pattern))[-1]
        damage(path, run.chance)
        run.say(f"{damage.__name__}: {path.relative_to(node.data_dir)} of node {node_id}")
        damaged = path.read_bytes()
        refuses(run, node_id, path)
        assert path.read_bytes() == damaged, f"{path} was refused, and changed"
        shutil.rmtree(node.data_dir)
        sound.rename(node.data_dir)


def _names(node: NodeProcess, before: int, text: str) -> bool:
    return text in node.log_text()[before:]


def flip_first_record(path: Path, chance: random.Random) -> None:
    """Of a ledger, where sound records follow: the very last one may be torn by a crash."""
    flip(path, chance.choice(FIRST_RECORD_AT), chance)


def cut_first_record(path: Path, chance: random.Random) -> None:
    """Of a ledger. Further back it has preallocated zeros, whose damage is not noticed."""
    os.truncate(path, chance.choice(FIRST_RECORD_AT))


def refuses(run: Run, node_id: int, path: Path) -> None:
    """The node does not start; it names the file."""
    node = run.cluster[node_id]
    before = len(node.log_text())
    node.start()
    try:
        eventually(lambda: not node.running, timeout_s=40.0, what=f"node {node_id} refuses {path}")
    finally:
        if node.running:
            node.kill()
    said = node.log_text()[before:]
    assert "Traceback" not in said, said[-2_000:]
    assert path.name in said, f"{path} is not named: {said[-2_000:]}"


def snapshots_damaged(run: Run) -> None:
    """The newest state of the metadata or of a group is damaged: the one before and the log serve instead."""
    for damage in (flip_anywhere, cut, clear):
        node_id = run.cluster.controller() if run.chance.random() < 0.5 else run.follower()
        run.served()
        run.say(f"stop {node_id} cleanly")
        run.cluster[node_id].terminate()
        found = [
            sorted(directory.glob("state-*.snapshot"))[-1]
            for pattern in ("internal/*/*", "topics/__consumer_offsets*/*")
            for directory in run.cluster[node_id].data_dir.glob(pattern)
            if list(directory.glob("state-*.snapshot"))
        ]
        assert found, "no state was saved"
        for path in found:
            damage(path, run.chance)
        run.say(f"{damage.__name__}: {len(found)} states of node {node_id}")
        run.start(node_id)
        run.whole()


def old_disk(run: Run) -> None:
    """A node gets an old copy of its disk back, and the only other node that knows the later records dies.

    The copy does not have what the node acknowledged. Together with the node that was paused meanwhile it is a majority
    that does not have it either: if the two elect a leader, those records are lost.
    """
    ids = run.cluster.ids
    half = len(ids) // 2
    first, *rest = run.chance.sample(ids, len(ids))
    behind, others = rest[:half], rest[half:]
    node = run.cluster[first]
    run.say(f"stop {first} cleanly, and copy its disk")
    node.terminate()
    old = node.data_dir.with_name(f"{node.data_dir.name}.old")
    shutil.copytree(node.data_dir, old)
    run.start(first)
    run.whole()
    run.pause(*behind)
    run.served()
    run.kill(first)
    shutil.rmtree(node.data_dir)
    old.rename(node.data_dir)
    run.kill(*others)
    run.resume(*behind)
    said_before = len(node.log_text())
    run.say(f"node {first} has its old disk back")
    run.start(first)
    run.silent(settle_s=6.0)
    run.start(*others)
    eventually(
        lambda: not node.running or not run.cluster.complaints(),
        timeout_s=60.0,
        interval_s=0.5,
        what=f"node {first} is refused or takes part",
    )
    if not node.running:
        run.expected += [" CRITICAL "]
        run.say(f"node {first} is refused: {node.log_text()[said_before:].splitlines()[-1]}")
        node.wipe()
        run.start(first)
    run.whole()
