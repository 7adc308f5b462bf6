"""The machine and the moment, so that a result file explains itself."""

import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

import psutil

from bench.process import ROOT

SYNC_PROBE_COUNT = 100
VOLATILE_FILE_SYSTEMS = ("tmpfs", "ramfs")


def describe(directory: Path) -> dict[str, object]:
    """Processor, memory, kernel, disk under `directory`, versions, and how busy it all was before."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "file_system": file_system(directory),
        "fdatasync_4k_seconds_p50": _sync_seconds(directory),
        "load_average": load_average(),
        "confluent_kafka": importlib.metadata.version("confluent-kafka"),
        "revision": _revision(),
    }


def sentence(described: dict[str, object], load_average_after: object, versions: dict[str, str]) -> str:
    """What a reader must know of the machine and the moment, in one line."""
    sync_ms = described.get("fdatasync_4k_seconds_p50")
    sync = f"4 KiB with fdatasync {sync_ms * 1000:.2f} ms, " if isinstance(sync_ms, float) else ""
    return (
        f"{described.get('cores')} cores, {described.get('processor')}, {described.get('file_system')}, {sync}"
        f"load average {described.get('load_average')} before and {load_average_after} after; "
        f"revision {described.get('revision')}; "
        f"{', '.join(f'{label} {version}' for label, version in versions.items())}"
    )


def load_average() -> list[float]:
    """How many programs wanted a core, over 1, 5 and 15 minutes."""
    return [round(value, 1) for value in os.getloadavg()]


def file_system(directory: Path) -> str:
    """The type of the file system that holds `directory`."""
    resolved = directory.resolve()
    mounts = [m for m in psutil.disk_partitions(all=True) if resolved.is_relative_to(m.mountpoint)]
    return max(mounts, key=lambda m: len(m.mountpoint)).fstype if mounts else "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _sync_seconds(directory: Path) -> float:
    """The median time to append 4 KiB and fdatasync."""
    path = directory / "sync-probe"
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNC_PROBE_COUNT):
            started = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    path.unlink()
    return statistics.median(times)


def _revision() -> str:
    """The commit, with a plus if the tree has changes."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    return (git("rev-parse", "--short=12", "HEAD") or "none") + ("+" if git("status", "--porcelain") else "")
