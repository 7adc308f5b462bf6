"""What `bench` makes of what it measured, and that it leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from drmq.testing import Broker

ROOT = Path(__file__).resolve().parents[2]
_CHECK_GAPS = """
from bench.clients.probe import longest_gap
times = [1.0, 1.5, 1.75, 2.75, 3.0]
found = [longest_gap(times, *window) for window in ((1.0, 1.6), (1.6, 1.7), (1.6, 1.8), (2.8, 9.0), (0.0, 0.5))]
assert found == [0.5, 0.25, 1.0, 6.0, 1.0], found
assert longest_gap([], 1.0, 3.0) == 2.0
"""
_CHECK_VERDICTS = """
from bench.cluster.failover import Failover
from bench.cluster.report import Results, judge

def met(gap_seconds, failures, probe="library"):
    failover = Failover("drmq x 3", 0.0, eager_probes=["raw"])
    failover.stop_gap_seconds[probe] = [0.1, gap_seconds]
    failover.stop_failures[probe] = failures
    [verdict] = judge(Results(failovers=[failover]))
    return verdict.is_met

found = [met(0.3, 0), met(0.31, 0), met(0.2, 1), met(0.2, 1, "raw"), met(0.31, 0, "raw")]
assert found == [True, False, False, True, False], found
"""


@pytest.mark.parametrize("check", [_CHECK_GAPS, _CHECK_VERDICTS], ids=["gaps", "verdicts"])
def test_stops_in_order_are_judged(check: str) -> None:
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


_CHECK_AIMS = """
from bench.clients.sweep import Swept
from bench.cluster.report import Results, judge
from bench.cluster.scale import Event, Scale
from bench.report import markdown
from bench.cluster.scale_report import events_table

def pause(seconds, again=1.0, size=3_000, burners=8):
    first = Swept(seconds, size if seconds else 367, {"5": 300, "10": 367})
    event = Event("pause", 120.0, 1.0, 2.0, size, size, first, Swept(again, size if again else 5, {}))
    scale = Scale("drmq x 3", size, burners, [event])
    return judge(Results(scales=[scale]))[0], scale

found = [pause(*of)[0].is_met for of in ((60.0,), (60.1,), (None,), (5.0, None))]
assert found == [True, False, False, False], found
assert pause(9.0, burners=0)[0].is_met and not pause(11.0, burners=0)[0].is_met
assert pause(9.0, size=300)[0].is_met is None
verdict, scale = pause(None)
assert verdict.measured == "367 of 3,000 within 120 s", verdict
row = markdown(events_table([scale])).splitlines()[-1]
assert row.startswith("| 3,000 | 8 | pause | 1.0 | 2.0 | not in 120 (367) | 300 | 367 |"), row

def growth(small, large):
    parts = [Scale("x", n, 0, [Event("start", 120.0, s, s)]) for n, s in ((3_000, small), (10_000, large))]
    return judge(Results(scales=parts))[-1].is_met

assert [growth(10.0, 33.0), growth(10.0, 45.0), growth(10.0, None)] == [True, False, False]
"""


def test_the_aims_of_many_partitions_are_judged() -> None:
    """A write that comes too late, or never, or not a second time, misses the aim; the table says how far it came."""
    done = subprocess.run([sys.executable, "-c", _CHECK_AIMS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


_CHECK_RATIOS = """
from bench.compare import Ratio, ratio_table
from bench.report import markdown
ratio = Ratio("1k", "produce, k records/s", (100.0, 200.0, 100.0), (200.0, 100.0, 100.0))
assert ratio.ratios == [2.0, 0.5, 1.0]
assert abs(ratio.mean - 1.0) < 1e-9 and 0.39 < ratio.error < 0.41, ratio.error
row = markdown(ratio_table([ratio])).splitlines()[-1]
assert row == "| 1k | produce, k records/s | 100.00 | 100.00 | 1.000 | 0.400 | 0.500 | 2.000 | above 1 |", row
"""


def test_two_checkouts_are_compared_within_each_repetition() -> None:
    """The ratio is taken between what was measured side by side: twice as fast once and half as fast once cancel."""
    done = subprocess.run([sys.executable, "-c", _CHECK_RATIOS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


_CHECK_SUMMARY = """
from pathlib import Path
from bench.cluster.drmq import DrmqCluster
from bench.cluster.failover import Failover
from bench.cluster.report import Results, summary_table
from bench.cluster.throughput import Cell, Paced
from bench.measurement import Phase
from bench.report import markdown
from bench.workloads import Batching, Workload

one, three = DrmqCluster(Path("x"), 1), DrmqCluster(Path("x"), 3)
results = Results(failovers=[Failover(three.label, 11.0, {"library": [0.5, None, 0.7], "raw": [0.1]})])
for system in (one, three):
    for count, records in ((1, 200_000), (16, 0)):
        cell = Cell(system, Workload("1k", 1000, Batching.LARGE, count, 1, seconds_max=1.0))
        if records:
            cell.produced.append(Phase(records, 1000, 1.0, 1.0, 1.0, 90_000_000, 120_000_000))
            cell.paced.append(Paced(10, 9.9, {"p50": 0.003, "p99": 0.0064}, (), 1.0))
        results.cells.append(cell)
lines = markdown(summary_table(results)).splitlines()
assert lines[2] == "|  | drmq × 3 |", lines
found = [line.split(" | ")[1].strip(" |") for line in lines[4:]]
assert found == ["yes", "200 MB/s", "–", "3.0 and 6.4 ms", "0.7 s", "40 MB"], found
"""


def test_the_summary_has_what_was_measured() -> None:
    """A missing number is a dash, a kill without an answer counts as endless, and memory is that of one node."""
    done = subprocess.run([sys.executable, "-c", _CHECK_SUMMARY], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_burners_end_with_the_benchmark() -> None:
    """Processes that burn CPU do not outlive the program that started them, even if it is killed."""
    code = "from bench.cluster.burners import Burners as B; b = B(2); b.start(); print(*b.pids, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        burners = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
        try:
            assert len(burners) == 2
            program.send_signal(signal.SIGKILL)
            deadline = time.monotonic() + 60
            while any(burner.is_running() and burner.status() != psutil.STATUS_ZOMBIE for burner in burners):
                assert time.monotonic() < deadline, "the burners still run"
                time.sleep(0.05)
        finally:
            for burner in burners:
                if burner.is_running():
                    burner.kill()


def test_a_sweep_writes_to_every_partition() -> None:
    """The program that writes to all partitions counts those that took a record, and ends in time if some do not."""
    with Broker() as broker:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("bench-0000", num_partitions=50)])["bench-0000"].result(60)
        task = {"ports": [int(servers.rpartition(":")[2])], "topic": "bench-0000", "partition_count": 60}
        with subprocess.Popen(
            [sys.executable, "-m", "bench.clients.sweep", json.dumps(task)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as program:  # fmt: skip
            assert program.stdin is not None
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            program.stdin.write(f"go {time.perf_counter()} 5\n")
            program.stdin.flush()
            swept = json.loads(program.stdout.readline())
            program.stdin.close()
        assert swept["count"] == 50
        assert swept["seconds"] is None


_CHECK_QUEUES = """
from bench.measurement import Phase
from bench.queues.kafka import EXPLICIT, MANY, OWN
from bench.queues.latency import LatencyCell, Timed
from bench.queues.memory import Memory
from bench.queues.systems import Contender
from bench.queues.targets import judge
from bench.queues.throughput import Cell, Shape

PEER = Contender("peer", "its client", "lease_x")

def cell(program, contender, rate, size=100, nodes=1, cpu=1.0):
    phase = Phase(rate, size, 1.0, cpu, 1.0, 0, 0)
    return Cell(Shape(size, 4), program, f"{program} x {nodes}", nodes, True, contender, [phase])

def met(*cells, timed=(), memory=None):
    return [verdict.is_met for verdict in judge(list(cells), list(timed), memory)]

# One node needs all of Kafka's rate, three need half of it, and the worst kind of work decides.
assert met(cell("drmq", EXPLICIT, 100), cell("kafka", EXPLICIT, 100)) == [True]
assert met(cell("drmq", EXPLICIT, 99), cell("kafka", EXPLICIT, 100)) == [False]
three = [cell("drmq", EXPLICIT, 50, nodes=3), cell("kafka", EXPLICIT, 100, nodes=3)]
assert met(*three) == [True]
assert met(*three, cell("drmq", EXPLICIT, 49, 1024, 3), cell("kafka", EXPLICIT, 100, 1024, 3)) == [False]
# Kafka is no peer of the own client, and of the peers the fastest counts.
assert met(cell("drmq", OWN, 500), cell("kafka", EXPLICIT, 900)) == []
assert met(cell("drmq", OWN, 500), cell("a", PEER, 100), cell("b", PEER, 50)) == [True]
assert met(cell("drmq", OWN, 499), cell("a", PEER, 100), cell("b", PEER, 50)) == [False]
# Of the raw client, what counts is the rate for each core that the broker used.
assert met(cell("drmq", MANY, 150_000, cpu=0.5), cell("drmq", MANY, 299_999, 1024)) == [True, False]

def timed(program, contender, p50, p99):
    run = Timed({"p50": p50, "p99": p99}, 1000.0)
    return LatencyCell(program, program, 1, True, contender, [run])

rows = [timed("drmq", OWN, 0.002, 0.009), timed("a", PEER, 0.002, 0.02), timed("b", PEER, 0.003, 0.008)]
assert met(timed=rows) == [True, False]
grown = Memory(10, 0, 50_000_000, 10, 0, 10_000_001)
assert met(memory=grown) == [True, False]
"""


def test_the_aims_of_queues_are_judged() -> None:
    done = subprocess.run([sys.executable, "-c", _CHECK_QUEUES], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_queues_are_measured(tmp_path: Path) -> None:
    """The smallest run: workers empty a queue of DRMQ. What they acknowledge is counted, and nothing is left behind."""
    result = tmp_path / "result.json"
    options = "--only drmq --nodes 1 --section throughput --sizes 100 --workers 1 --messages 4000 --repeat 1"
    command = [sys.executable, "-m", "bench", "queues", *options.split(), "--client", "explicit", "--client", "own"]
    with subprocess.Popen(
        [*command, "--seconds", "30", "--json", str(result), "--directory", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        words = program.stdout.read()
        assert program.wait(60) == 0, words
    found = json.loads(result.read_text())
    assert found["errors"] == []
    assert [row["client"] for row in found["throughput"]] == ["ShareConsumer, explicit", "own client"]
    for row in found["throughput"]:
        # Some messages are taken before the clock starts.
        assert 1_000 < row["median"]["records"] < 4_000
        assert row["median"]["records_per_second"] > 0
    assert list(tmp_path.iterdir()) == [result]
    mine = [each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(each.info["cmdline"] or [])]
    assert mine == []
