"""How rough a simulated world is: drawn from the seed, so that runs differ in kind and not only in luck."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from drmq.testing.simulation.world import MS, SECOND

_NEVER = 10**12


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

    @classmethod
    def draw(cls, random: Random) -> Profile:
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
        )
