"""SIGKILL before every sync and rename of a scripted run: each time all that was confirmed is there afterwards.

The walk is exhaustive: step 1, step 2, and so on, until the script and a clean shutdown get to their end. It uses
`support.step_broker`; strace then shows that this counts what the kernel sees, kills from outside as well, and makes a
sync fail.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.polling import PATIENCE_S, Deadline, eventually
from support.ports import lasting_port
from support.processes import BrokerProcess
from support.raw_client import EARLIEST, KAFKA_STORAGE_ERROR, RawClient, RequestFailed, read_produced
from support.step_broker import StepBrokers
from support.wire import batch, produce

ENVIRONMENT = {"DRMQ_OFFSETS_TOPIC_PARTITIONS": "1"}
BATCHES = 20
TOPIC, GONE, GROUP = "steps", "gone", "group"
UNKNOWN_TOPIC, TOPIC_EXISTS = 3, 36


@dataclass
class Script:
    """Does a bit of everything, notes what was confirmed, and can go on later where it was interrupted."""

    created: bool = False
    producer: tuple[int, int] | None = None
    acked: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Value by partition and offset."""
    batch: int = 0
    """The next batch to be sent, or to be sent again."""
    committed: int = -1
    commit_asked: int = -1
    gone: str = ""
    """How far the topic that is deleted has come."""
    deleted_before: int = 0
    delete_asked: int = 0

    def run(self, client: RawClient) -> None:
        """All of it. Raises `OSError` when the broker dies; running it again goes on."""
        if not self.created:
            with _allowed(TOPIC_EXISTS):
                client.create_topic(TOPIC, 2, {"segment.bytes": "1024"})
            self.created = True
        if self.producer is None:
            self.producer = client.init_producer_id()
        while self.batch < BATCHES:
            self._produce(client, self.batch)
            self.batch += 1
            if self.batch % 5 == 0:
                self.commit_asked = self.batch
                client.commit(GROUP, TOPIC, self.batch)
                self.committed = self.batch
        if self.gone == "":
            with _allowed(TOPIC_EXISTS):
                client.create_topic(GONE, 1)
            client.produce(GONE, [b"gone"])
            self.gone = "asked"
        if self.gone == "asked":
            with _allowed(UNKNOWN_TOPIC):
                client.delete_topic(GONE)
            self.gone = "deleted"
        if not self.deleted_before:
            self.delete_asked = 7
            assert client.delete_records(TOPIC, 7) == 7
            self.deleted_before = 7

    def _produce(self, client: RawClient, number: int) -> None:
        assert self.producer is not None
        partition, value = number % 2, b"batch-%d " % number * 20
        offset = client.produce(
            TOPIC,
            [value],
            partition=partition,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=number // 2,
        )
        assert offset == number // 2, f"batch {number} is at {offset} of partition {partition}"
        self.acked[partition, offset] = value

    def check(self, client: RawClient) -> None:
        """What was confirmed holds, and nothing is there that was not asked for."""
        if self.created:
            for partition in (0, 1):
                first = client.offset(TOPIC, EARLIEST, partition=partition)
                assert first in ({self.deleted_before, self.delete_asked} if partition == 0 else {0}), first
                found = client.fetch_all(TOPIC, partition=partition)
                wanted = {
                    offset: value for (at, offset), value in self.acked.items() if at == partition and offset >= first
                }
                more = found.keys() - wanted.keys()
                assert {offset: found.get(offset) for offset in wanted} == wanted
                assert len(more) <= 1, f"unasked records at {more}"
            assert client.committed(GROUP, TOPIC) in {self.committed, self.commit_asked}
        if self.gone == "deleted":
            with pytest.raises(RequestFailed) as refused:
                client.fetch(GONE, 0)
            assert refused.value.code == UNKNOWN_TOPIC


@contextmanager
def _allowed(code: int) -> Iterator[None]:
    """Go on after this error: the first attempt may have worked although its answer was lost."""
    try:
        yield
    except RequestFailed as error:
        if error.code != code:
            raise


def connect(brokers: StepBrokers, port: int) -> RawClient | None:
    """A connection to a broker that is starting, or None if it dies first."""
    deadline = Deadline()
    while not deadline.passed():
        try:
            return RawClient(f"127.0.0.1:{port}")
        except OSError:
            if brokers.has_ended:
                return None
    raise AssertionError("the broker neither serves nor ends")


def run_until_killed(brokers: StepBrokers, data_dir: Path, port: int, kill_at: int, script: Script) -> tuple[int, int]:
    """Run the script and a clean shutdown; the broker's exit status and its number of steps."""
    brokers.start(data_dir, port, kill_at)
    client = connect(brokers, port)
    if client is None:
        return brokers.wait()
    with client:
        try:
            script.run(client)
        except OSError:
            eventually(lambda: brokers.has_ended, what="the connection was lost because the broker died")
            return brokers.wait()
    return brokers.end(signal.SIGTERM)


@pytest.mark.parametrize("first", [1, 2])
def test_killed_before_every_step(tmp_path: Path, first: int) -> None:
    """Wherever it is killed, the broker starts by itself, keeps what it confirmed, and the script can go on.

    Odd and even steps are two tests, so that two workers share the walk.
    """
    port = lasting_port()
    log_path = tmp_path / "brokers.log"
    places = Counter[str]()
    with StepBrokers(log_path, ENVIRONMENT) as brokers:
        for kill_at in range(first, 10_000, 2):
            data_dir = tmp_path / f"at-{kill_at}"
            script = Script()
            status, steps = run_until_killed(brokers, data_dir, port, kill_at, script)
            if status == 0:
                assert steps < kill_at
                break
            text = log_path.read_text()
            assert (status, steps) == (-signal.SIGKILL, kill_at), text[-3_000:]
            places["script" if script.created else "start"] += 1
            places["shutdown"] += script.deleted_before > 0
            brokers.start(data_dir, port)
            client = connect(brokers, port)
            assert client is not None, f"no start after a kill at step {kill_at}: {log_path.read_text()[-3_000:]}"
            with client:
                script.check(client)
                script.run(client)
                script.check(client)
            brokers.end(signal.SIGKILL)
            shutil.rmtree(data_dir)
    text = log_path.read_text()
    assert "Traceback" not in text, text[text.index("Traceback") :][:3_000]
    assert "is stopped" not in text
    print(f"steps {first}, {first + 2}, ... {kill_at - 2}: {dict(places)}")
    # If there are hardly any, the counter does not sit where the syncs are.
    assert places["start"] > 5
    assert places["script"] > BATCHES
    assert places["shutdown"] > 2


def test_killed_before_every_step_of_a_recovery(tmp_path: Path) -> None:
    """A start after a crash is killed at each of its steps in turn, on one directory: it harms nothing."""
    port = lasting_port()
    log_path = tmp_path / "brokers.log"
    data_dir = tmp_path / "data"
    script = Script()
    with StepBrokers(log_path, ENVIRONMENT) as brokers:
        brokers.start(data_dir, port)
        client = connect(brokers, port)
        assert client is not None
        with client:
            script.run(client)
        brokers.end(signal.SIGKILL)
        # Torn tails, which a recovery cuts and syncs.
        for partition in data_dir.glob(f"topics/{TOPIC}.*/*"):
            with max(partition.glob("*.log")).open("ab") as file:
                file.write(b"torn")
        for kill_at in range(1, 200):
            brokers.start(data_dir, port, kill_at)
            client = connect(brokers, port)
            if client is not None:
                # The port is open before the start is over: whoever asks too early waits, and may lose the connection.
                with client, suppress(OSError):
                    script.check(client)
                    brokers.end(signal.SIGKILL)
                    break
            assert brokers.wait() == (-signal.SIGKILL, kill_at), log_path.read_text()[-3_000:]
        assert kill_at > 5
        assert "cut a torn tail" in log_path.read_text()


# ---- with strace --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strace() -> str:
    """The program, if it is there and may trace."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed (Debian package strace)")
    tried = subprocess.run([program, "-o", "/dev/null", "/bin/true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"strace (Debian package strace) may not trace here: {tried.stderr.decode().strip()}")
    return program


class TracedBroker(BrokerProcess):
    """A broker under strace. `-D` makes strace a grandchild, so that the process that a test ends is the broker."""

    tracing: list[str] = []

    @property
    def command(self) -> list[str]:
        return [*self.tracing, *super().command]


def traced(program: str, data_dir: Path, port: int, output: Path, inject: str | None) -> TracedBroker:
    broker = TracedBroker(data_dir, port, env=ENVIRONMENT)
    broker.tracing = [program, "-D", "-f", "-qq", "-o", str(output), "-e", "trace=fsync,fdatasync,rename"]
    if inject is not None:
        broker.tracing += ["-e", f"inject=fsync,fdatasync:{inject}"]
    return broker


def test_no_sync_escapes_the_count(strace: str, tmp_path: Path) -> None:
    """The kernel sees as many syncs and renames of files as the walk above counts.

    Not those of directories: how many new directories share a sync of those above them depends on the moment, and
    there may be many above them.
    """
    port = lasting_port()
    with StepBrokers(tmp_path / "brokers.log", ENVIRONMENT) as brokers:
        run_until_killed(brokers, tmp_path / "counted" / "data", port, 0, Script())
    steps = brokers.file_steps
    output = tmp_path / "strace.txt"
    with traced(strace, tmp_path / "traced" / "data", port, output, None) as broker:
        with RawClient(broker.bootstrap) as client:
            Script().run(client)
        assert broker.terminate() == 0

    def calls() -> list[str]:
        return re.findall(r"^\d+ +(?:fdatasync|rename)\(", output.read_text(), re.MULTILINE)

    # How many batches share a sync depends on the moment, hence not exactly the same.
    seen = eventually(calls, lambda found: len(found) >= steps * 0.9, what=f"about {steps} calls")
    assert len(seen) <= steps * 1.1, (len(seen), steps)


@pytest.mark.parametrize("when", [1, 4, 9, 16, 25, 36])
def test_killed_from_outside(strace: str, tmp_path: Path, when: int) -> None:
    """The real program, killed by the tracer before the n-th sync of whichever thread gets there first."""
    script = Script()
    broker = traced(strace, tmp_path / "data", lasting_port(), tmp_path / "strace.txt", f"signal=KILL:when={when}")
    try:
        try:
            broker.start().wait_ready()
        except RuntimeError:
            pass
        else:
            with RawClient(broker.bootstrap) as client, pytest.raises(OSError):
                script.run(client)
        eventually(lambda: broker.exit_status(), lambda status: status is not None, what="the kill")
        assert broker.exit_status() == -signal.SIGKILL
    finally:
        if broker.running:
            broker.kill()
    with BrokerProcess(broker.data_dir, broker.port, env=ENVIRONMENT) as again, RawClient(again.bootstrap) as client:
        script.check(client)
        script.run(client)
        script.check(client)


@contextmanager
def injected(program: str, broker: BrokerProcess, paths: list[Path], inject: str, output: Path) -> Iterator[None]:
    """Let a system call on these files fail, in a broker that runs."""
    only = [word for path in paths for word in ("-P", str(path))]
    tracer = subprocess.Popen(
        [program, "-f", "-qq", "-p", str(broker.pid), "-o", str(output), *only, "-e", f"inject={inject}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def is_traced() -> bool:
            statuses = list(Path(f"/proc/{broker.pid}/task").glob("*/status"))
            return all(f"TracerPid:\t{tracer.pid}\n" in status.read_text() for status in statuses)

        eventually(is_traced, what="strace is attached to every thread")
        yield
    finally:
        tracer.terminate()
        tracer.wait(PATIENCE_S)


def only_log(broker: BrokerProcess, topic: str, partition: int) -> Path:
    (path,) = broker.data_dir.glob(f"topics/{topic}.*/{partition}/*.log")
    return path


def test_failed_sync_fences_the_partition_until_a_restart(strace: str, tmp_path: Path) -> None:
    """EIO from the journal's fdatasync and then from the log's own: that producer hears KAFKA_STORAGE_ERROR.

    Readers and other partitions go on.

    The kernel marks the pages as clean after the failure, so that a second sync would prove nothing: the
    partition takes nothing more until a restart has looked at what is really there.
    """
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("fence", 2)
            for number in range(5):
                assert client.produce("fence", [b"kept-%d" % number]) == number
        with (
            injected(
                strace,
                broker,
                [only_log(broker, "fence", 0), *broker.data_dir.glob("journal-*")],
                "fdatasync:error=EIO",
                tmp_path / "strace.txt",
            ),
            RawClient(broker.bootstrap) as client,
        ):
            # Together, so that they share the sync: what acks=1 is told must not be told to acks=all.
            opened = [b"open-%d" % number for number in range(10)]
            acks = {client.next_id(): -(number % 2) or 1 for number in range(10)}
            requests = zip(acks, opened, strict=True)
            client.connection.send(
                b"".join(produce("fence", batch([value]), number, acks=acks[number]) for number, value in requests)
            )
            for number in acks:
                answer = client.connection.receive()
                assert answer.int32() == number
                if acks[number] == -1:
                    with pytest.raises(RequestFailed) as refused:
                        read_produced(answer)
                    assert refused.value.code == KAFKA_STORAGE_ERROR
        assert "INJECTED" in (tmp_path / "strace.txt").read_text()
        with RawClient(broker.bootstrap) as client:
            for wanted in (-1, 1):
                with pytest.raises(RequestFailed) as refused:
                    client.produce("fence", [b"refused"], acks=wanted)
                assert refused.value.code == KAFKA_STORAGE_ERROR
            kept = {number: b"kept-%d" % number for number in range(5)}
            assert client.fetch_all("fence") == kept, "what is not durable is not visible"
            assert client.produce("fence", [b"other"], partition=1) == 0
            assert client.fetch_all("fence", partition=1) == {0: b"other"}
        broker.terminate()
        broker.start().wait_ready()
        with RawClient(broker.bootstrap) as client:
            found = client.fetch_all("fence")
            # The outcome of the failed ones was open: they may be there, in order, and nothing else may.
            assert found == dict(enumerate([*kept.values(), *opened][: len(found)]))
            assert len(found) >= len(kept)
            assert client.produce("fence", [b"again"]) == len(found)
            assert client.fetch_all("fence", partition=1) == {0: b"other"}
        assert "Traceback" not in broker.log_text()


def test_failed_write_leaves_no_trace(strace: str, tmp_path: Path) -> None:
    """EIO from one write: the producer hears of it, the partition cleans up and takes the next batch."""
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("write", 1)
            assert client.produce("write", [b"first"]) == 0
        with (
            injected(
                strace,
                broker,
                [only_log(broker, "write", 0)],
                "pwrite64,pwritev,pwritev2:error=EIO:when=1",
                tmp_path / "strace.txt",
            ),
            RawClient(broker.bootstrap) as client,
        ):
            with pytest.raises(RequestFailed) as refused:
                client.produce("write", [b"refused"])
            assert refused.value.code == KAFKA_STORAGE_ERROR
        assert "INJECTED" in (tmp_path / "strace.txt").read_text()

        def produce() -> int | None:
            with RawClient(broker.bootstrap) as client:
                try:
                    return client.produce("write", [b"second"])
                except RequestFailed as error:
                    if error.code != KAFKA_STORAGE_ERROR:
                        raise
                    return None

        assert eventually(produce, lambda offset: offset is not None) == 1
        broker.restart(crash=True)
        with RawClient(broker.bootstrap) as client:
            assert client.fetch_all("write") == {0: b"first", 1: b"second"}
