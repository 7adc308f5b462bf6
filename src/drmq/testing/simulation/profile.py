"""How many faults a run has: drawn from the seed, so that runs differ in kind and not only in timing.

A run can also be given a *kind*, which raises some of the drawn rates and lowers the others: to test one topic
thoroughly, or to detect a planted bug in seconds. `KINDS` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from drmq.leases import LeaseOptions
from drmq.testing.simulation.lease_members import TIMELY, USUAL, Habits
from drmq.testing.simulation.world import MS, SECOND

_NEVER = 10**12

_LEASES = LeaseOptions(duration_ms=2_500, attempts_max=4, leased_max=40, parked_max=100, dying_max=30)
"""Short leases and small limits, so that all of them are met."""

ANY = "any"
"""The kind of a run that is determined by its seed alone."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The faults of a run and their rates. Times are virtual microseconds."""

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
    """The probability that a machine loses power right after it has sent or requested a vote."""
    cut_after_accept: float
    """The same after it has acknowledged entries."""
    damages: int
    """Disks on which a synced bit flips while their machine is off; at most one, like `wipes`."""
    wipes: int
    """Disks that are lost in this run; at most one, since a second one could exceed what the cluster tolerates."""
    strand_every_us: int
    """Leaders that are isolated from the other nodes, but not from clients, while or before another one takes over."""
    cut_while_installing: float
    """The probability that a machine loses power while it replaces its log by a leader's snapshot."""
    chunk_bytes: int
    """The largest chunk of a snapshot in one message."""
    short_retention_bytes: int
    """The retention of the topic whose oldest records are removed. It may be less than a segment."""
    repeats: bool
    """Whether a producer repeats batches long after they were acknowledged."""
    members: int
    """Members of a group that divide partitions among themselves."""
    topics: bool
    """Whether a topic is created and deleted continuously."""
    growth: bool
    """Whether a node joins, and one leaves."""
    rots: int
    """Bits that flip in old parts of logs while processes use them, one at a time, never with another bad disk."""
    unit_us: int = 0
    """The processor time that a unit of work costs a node; 0 if nodes are not short of it."""
    idle_partitions: int = 0
    """Partitions that no client uses. As long as all nodes work, they cost nothing."""
    lease_members: int = 0
    """Members of a group that works by lease."""
    lease_options: LeaseOptions = _LEASES
    habits: Habits = USUAL
    """How these members behave."""
    lease_fault_every_us: int = _NEVER
    """Leaders of lease shards, or of the data, that are killed, moved or cut off while leases are out."""
    lease_patience_ms: float | None = None
    """How soon a job must be delivered while nothing is disturbed."""
    has_others: bool = True
    """Whether there are other clients than those of the lease group."""

    @classmethod
    def draw(cls, random: Random, more: Random, kind: str = ANY) -> Profile:
        """The profile of a seed. Both generators are advanced to the same point for every kind.

        There are two generators so that later additions to the simulator do not change runs that do not use them.
        """
        return KINDS[kind](cls._draw(random, more))

    @classmethod
    def _draw(cls, random: Random, more: Random) -> Profile:
        rough = random.random() < 0.75

        # At most one disk of a run is bad, in one way: two could exceed what the cluster tolerates.
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
            lease_members=more.choice((0, 0, 3)),
        )


def _plain(profile: Profile) -> Profile:
    """Faults happen, but clients only write, read and commit, and nodes stay."""
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
        lease_members=0,
    )


def _quiet(profile: Profile) -> Profile:
    """No faults, and only the usual work."""
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
    """The starts of logs move continuously, and nodes restart meanwhile."""
    return replace(
        _quiet(profile),
        power_cut_every_us=6 * SECOND,
        kill_every_us=5 * SECOND,
        trim_every_us=3 * SECOND,
        short_retention_bytes=2_000,
        repeats=True,
    )


def _installs(profile: Profile) -> Profile:
    """Nodes fall behind what others still have in their logs, and lose power while they catch up."""
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
    """Leaders are replaced without noticing it."""
    return replace(_quiet(profile), strand_every_us=3 * SECOND, members=3)


def _groups(profile: Profile) -> Profile:
    """Members come and go, and so do their coordinators."""
    return replace(
        _quiet(profile), members=3, transfer_every_us=4 * SECOND, kill_every_us=8 * SECOND, cut_every_us=10 * SECOND
    )


def _topics(profile: Profile) -> Profile:
    """A topic is created and deleted while nodes fail."""
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
    """Bits flip in data that the running processes have not read yet."""
    return replace(_quiet(profile), rots=3, kill_every_us=4 * SECOND, transfer_every_us=5 * SECOND)


def _starved(profile: Profile) -> Profile:
    """Nodes are so short of processor time that they cannot carry all partitions awake, and are paused now and then."""
    return replace(_quiet(profile), unit_us=1 * MS, idle_partitions=40, pause_every_us=4 * SECOND)


def _work(profile: Profile) -> Profile:
    """A lease group whose members do all their work in time, and nothing fails."""
    return replace(_quiet(profile), has_others=False, lease_members=5, habits=TIMELY, lease_patience_ms=3_000)


def _leases(profile: Profile) -> Profile:
    """Members of a lease group behave badly, and leaders die or move while leases are out."""
    return replace(
        _quiet(profile),
        has_others=False,
        lease_members=5,
        habits=Habits(poison=0.05),
        lease_fault_every_us=2 * SECOND,
        clock_jump_every_us=5 * SECOND,
        power_cut_every_us=12 * SECOND,
        cut_every_us=8 * SECOND,
        pause_every_us=12 * SECOND,
    )


def _letters(profile: Profile) -> Profile:
    """Much is given up, and lease shards move while dead letters are written."""
    return replace(
        _leases(profile),
        habits=Habits(poison=0.3, reject=0.2),
        lease_options=replace(_LEASES, attempts_max=2, dying_max=10),
        lease_fault_every_us=4 * SECOND,
    )


def _poison(profile: Profile) -> Profile:
    """More records fail than the group may lease at a time; nothing else goes wrong."""
    return replace(
        _quiet(profile),
        has_others=False,
        lease_members=6,
        habits=TIMELY._replace(poison=0.4),
        lease_options=replace(_LEASES, leased_max=12, parked_max=10_000, backoff_ms=500, backoff_max_ms=2_000),
        lease_patience_ms=3_000,
    )


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
    "starved": _starved,
    "work": _work,
    "leases": _leases,
    "letters": _letters,
    "poison": _poison,
}
"""The kinds of runs, by name."""
