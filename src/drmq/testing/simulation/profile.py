"""How rough a simulated world is: drawn from the seed, so that runs differ in kind and not only in luck.

A run can also be given a *kind*, which turns some of what was drawn up and the rest down: to look closely at one
matter, or to see a planted bug in seconds. `KINDS` has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from drmq.testing.simulation.world import MS, SECOND

_NEVER = 10**12

ANY = "any"
"""The kind of a run that is what its seed says."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The faults of a run, and how often they come. Times are virtual microseconds."""

    loss: float
    duplication: float
    delay_us_max: int
    late: float
    late_us_max: int
    disk_us_max: int
    power_cut_every_us: int
    kill_every_us: int
    blackout_every_us: int
    """Power cuts of all machines at once."""
    stop_every_us: int
    cut_every_us: int
    pause_every_us: int
    slow_disk_every_us: int
    full_disk_every_us: int
    sync_error_every_us: int
    clock_jump_every_us: int
    transfer_every_us: int
    reassign_every_us: int
    trim_every_us: int
    cut_after_vote: float
    """How likely a machine loses its power right after it has given its vote, or told others of its own."""
    cut_after_accept: float
    """The same after it has said that it holds entries."""
    damages: int
    """Disks that flip a bit of what was synced while their machine is off; never more than one, like `wipes`."""
    wipes: int
    """Disks that are lost in this run; never more than one, since a second one could be beyond what is promised."""
    strand_every_us: int
    """Leaders that are cut off from the other nodes, while or before another takes over, and not from clients."""
    cut_while_installing: float
    """How likely a machine loses its power while it puts a leader's snapshot in the place of its own log."""
    chunk_bytes: int
    """The largest part of a snapshot that travels in one message."""
    short_retention_bytes: int
    """What is kept of the topic whose oldest records go. It may be less than a segment."""
    repeats: bool
    """Whether a producer sends batches again long after they were acknowledged."""
    members: int
    """Members of a group that share partitions among themselves."""
    topics: bool
    """Whether a topic is made and deleted all the time."""
    growth: bool
    """Whether a node joins, and one leaves."""
    rots: int
    """Bits that flip in old parts of logs while processes use them, one at a time; not where another disk is bad."""

    @classmethod
    def draw(cls, random: Random, more: Random, kind: str = ANY) -> Profile:
        """What a seed amounts to. Both generators are used up to the same point for every kind.

        There are two so that what is added to the simulator later leaves the runs alone that do without it.
        """
        return KINDS[kind](cls._draw(random, more))

    @classmethod
    def _draw(cls, random: Random, more: Random) -> Profile:
        rough = random.random() < 0.75

        # One disk of a run may be bad, in one way: two could be beyond what is promised.
        disk = random.choice(("sound", "sound", "sound", "failing", "lost", "damaged"))

        def every(*seconds: float) -> int:
            choice = random.choice(seconds)
            return int(choice * SECOND) if choice else _NEVER

        return cls(
            loss=random.choice((0.0, 0.0, 0.02, 0.1)) if rough else 0.0,
            duplication=random.choice((0.0, 0.05, 0.2)),
            delay_us_max=random.choice((300, 2 * MS, 20 * MS)),
            late=random.choice((0.0, 0.01, 0.1)) if rough else 0.0,
            late_us_max=random.choice((20 * MS, 300 * MS)),
            disk_us_max=random.choice((300, 1 * MS, 15 * MS)),
            power_cut_every_us=every(0, 8, 15, 40),
            kill_every_us=every(0, 15, 40),
            blackout_every_us=every(0, 0, 20, 50),
            stop_every_us=every(0, 20, 60),
            cut_every_us=every(0, 6, 15, 40),
            pause_every_us=every(0, 10, 30),
            slow_disk_every_us=every(0, 20, 40),
            full_disk_every_us=every(0, 0, 20, 40),
            sync_error_every_us=every(15, 40) if disk == "failing" else _NEVER,
            clock_jump_every_us=every(0, 8, 30),
            transfer_every_us=every(0, 5, 20),
            reassign_every_us=every(0, 0, 10, 25),
            trim_every_us=every(0, 10, 30),
            cut_after_vote=random.choice((0.0, 0.1)),
            cut_after_accept=random.choice((0.0, 0.0, 0.001)),
            damages=1 if disk == "damaged" else 0,
            wipes=1 if disk == "lost" else 0,
            strand_every_us=more.choice((_NEVER, _NEVER, 10 * SECOND, 20 * SECOND)),
            cut_while_installing=more.choice((0.0, 0.2)),
            chunk_bytes=more.choice((2 << 20, 600)),
            short_retention_bytes=more.choice((12_000, 12_000, 2_000)),
            repeats=more.random() < 0.5,
            members=more.choice((0, 2, 3)),
            topics=more.random() < 0.5,
            growth=more.random() < 0.3,
            rots=more.choice((0, 3)) if disk == "sound" else 0,
        )


def _plain(profile: Profile) -> Profile:
    """Things go wrong, but clients only write, read and commit, and nodes stay."""
    return replace(
        profile,
        strand_every_us=_NEVER,
        cut_while_installing=0.0,
        chunk_bytes=2 << 20,
        short_retention_bytes=12_000,
        repeats=False,
        members=0,
        topics=False,
        growth=False,
        rots=0,
    )


def _quiet(profile: Profile) -> Profile:
    """Nothing goes wrong, and nothing beside the usual work is done."""
    return replace(
        _plain(profile),
        loss=0.0,
        late=0.0,
        power_cut_every_us=_NEVER,
        kill_every_us=_NEVER,
        blackout_every_us=_NEVER,
        stop_every_us=_NEVER,
        cut_every_us=_NEVER,
        pause_every_us=_NEVER,
        slow_disk_every_us=_NEVER,
        full_disk_every_us=_NEVER,
        sync_error_every_us=_NEVER,
        clock_jump_every_us=_NEVER,
        transfer_every_us=_NEVER,
        reassign_every_us=_NEVER,
        trim_every_us=_NEVER,
        cut_after_vote=0.0,
        cut_after_accept=0.0,
        damages=0,
        wipes=0,
    )


def _retention(profile: Profile) -> Profile:
    """Logs begin later all the time, and nodes come back to that."""
    return replace(
        _quiet(profile),
        power_cut_every_us=6 * SECOND,
        kill_every_us=5 * SECOND,
        trim_every_us=3 * SECOND,
        short_retention_bytes=2_000,
        repeats=True,
    )


def _installs(profile: Profile) -> Profile:
    """Nodes lag behind what others still have, and lose power while they catch up."""
    return replace(
        _quiet(profile),
        power_cut_every_us=8 * SECOND,
        kill_every_us=6 * SECOND,
        trim_every_us=2 * SECOND,
        cut_while_installing=0.8,
        chunk_bytes=60,
        repeats=True,
    )


def _strands(profile: Profile) -> Profile:
    """Leaders are replaced and do not know it."""
    return replace(_quiet(profile), strand_every_us=3 * SECOND, members=3)


def _groups(profile: Profile) -> Profile:
    """Members come and go, and so do their coordinators."""
    return replace(
        _quiet(profile), members=3, transfer_every_us=4 * SECOND, kill_every_us=8 * SECOND, cut_every_us=10 * SECOND
    )


def _topics(profile: Profile) -> Profile:
    """A topic comes and goes while nodes do."""
    return replace(
        _quiet(profile),
        topics=True,
        transfer_every_us=3 * SECOND,
        kill_every_us=8 * SECOND,
        power_cut_every_us=8 * SECOND,
        strand_every_us=3 * SECOND,
    )


def _growth(profile: Profile) -> Profile:
    """Nodes join and leave, and partitions move."""
    return replace(
        _quiet(profile),
        growth=True,
        reassign_every_us=5 * SECOND,
        transfer_every_us=5 * SECOND,
        kill_every_us=10 * SECOND,
        cut_every_us=12 * SECOND,
    )


def _rot(profile: Profile) -> Profile:
    """Bits flip under processes that have yet to read what others wrote before them."""
    return replace(_quiet(profile), rots=3, kill_every_us=4 * SECOND, transfer_every_us=5 * SECOND)


KINDS: dict[str, Callable[[Profile], Profile]] = {
    ANY: lambda profile: profile,
    "plain": _plain,
    "quiet": _quiet,
    "retention": _retention,
    "installs": _installs,
    "strands": _strands,
    "groups": _groups,
    "topics": _topics,
    "growth": _growth,
    "rot": _rot,
}
"""The kinds of runs, by name."""
