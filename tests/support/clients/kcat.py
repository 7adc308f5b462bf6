"""kcat: librdkafka of the Linux distribution, as a program.

kcat reads records from its standard input and takes headers and the meaning of "empty" from its arguments, so records
that differ in those need a run each. It writes what it consumed in a format with lengths, which survives any bytes in
keys and values. Header values must not contain a comma, an equals sign or a line feed, nor be the word NULL: kcat
prints headers as text.
"""

import itertools
import re
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Literal

from support.clients.base import (
    RECORD_SIZE_BYTES_MAX,
    SESSION_TIMEOUT_MS,
    Acks,
    Client,
    Codec,
    Delivery,
    Headers,
    KafkaFailure,
    Member,
    Partition,
    Received,
    Record,
)
from support.polling import PATIENCE_S

_RECORD_END = "<<record-end>>"
_KEY_END = "<<key-end>>"
_FORMAT = "%t %p %o %T %K %S\\n%k%s%h\\n"

_DELIVERED = re.compile(r"Message delivered to partition (\d+) \(offset (-?\d+)\)")
_REBALANCED = re.compile(r"Group .* rebalanced.*?(assign|revoke).*?: (.*)")
_PARTITION = re.compile(r"(\S+) \[(\d+)\]")

_CODES = {
    "Message size too large": 10,
    "Unknown topic or partition": 3,
    "Static consumer fenced": 82,
    "Offset out of range": 1,
}
"""The texts of librdkafka for the codes that tests ask about: kcat prints no numbers."""


def _failure(text: str) -> KafkaFailure:
    code = next((code for words, code in _CODES.items() if words in text), -1)
    return KafkaFailure(code, text.strip())


class KcatClient(Client):
    name = "kcat"
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for (headers, partition, keyed, empty_is_null), run in itertools.groupby(records, _arguments_of):
            command = ["kcat", "-b", self.bootstrap, "-P", "-t", topic, "-D", _RECORD_END, "-vvv"]
            command += ["-X", f"compression.codec={codec}", "-X", f"acks={acks}", "-X", "linger.ms=5"]
            command += ["-X", f"enable.idempotence={str(idempotent).lower()}"]
            command += ["-X", f"message.max.bytes={RECORD_SIZE_BYTES_MAX}", "-X", "topic.produce.offset.report=true"]
            if partition is not None:
                command += ["-p", str(partition)]
            if keyed:
                command += ["-K", _KEY_END]
            if empty_is_null:
                command += ["-Z"]
            for name, value in headers:
                command += ["-H", name if value is None else f"{name}={value.decode('utf-8', 'surrogateescape')}"]
            lines = []
            for record in run:
                assert record.timestamp_ms is None, "kcat cannot set timestamps"
                key = (record.key or b"") + _KEY_END.encode() if keyed else b""
                lines.append(key + (record.value or b"") + _RECORD_END.encode())
            ended = subprocess.run(command, input=b"".join(lines), capture_output=True, timeout=PATIENCE_S, check=False)
            text = ended.stderr.decode(errors="replace")
            if ended.returncode != 0 or "ERROR" in text or "failed" in text:
                raise _failure(text)
            found = [
                Delivery(int(partition), int(offset) if acks != "0" else None)
                for partition, offset in _DELIVERED.findall(text)
            ]
            assert len(found) == len(lines), f"kcat reports {len(found)} of {len(lines)} records:\n{text}"
            deliveries += found
        return deliveries

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partitions: Sequence[int] = (0,),
        offset: int | Literal["earliest", "latest"] = "earliest",
        reset: Literal["earliest", "latest"] = "earliest",
        read_committed: bool = False,
        partition_fetch_bytes_max: int = 1024 * 1024,
        fetch_bytes_min: int = 1,
        fetch_wait_ms_max: int = 500,
        timeout_s: float = PATIENCE_S,
    ) -> list[Received]:
        command = ["kcat", "-b", self.bootstrap, "-C", "-q", "-u", "-t", topic, "-c", str(count), "-f", _FORMAT]
        command += ["-o", {"earliest": "beginning", "latest": "end"}.get(str(offset), str(offset))]
        if len(partitions) == 1:
            # Without -p kcat reads all partitions of the topic, which is what more than one means here.
            command += ["-p", str(partitions[0])]
        settings = {
            "auto.offset.reset": reset,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "fetch.message.max.bytes": partition_fetch_bytes_max,
            "fetch.min.bytes": fetch_bytes_min,
            "fetch.wait.max.ms": fetch_wait_ms_max,
        }
        for name, value in settings.items():
            command += ["-X", f"{name}={value}"]
        try:
            ended = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as expired:
            return parse(expired.stdout or b"")
        if ended.returncode != 0:
            raise _failure(ended.stderr.decode(errors="replace"))
        return parse(ended.stdout)

    def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        assignor: str = "range",
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        metadata_age_ms_max: int = 300_000,
    ) -> "KcatMember":
        settings = {
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": 300,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": metadata_age_ms_max,
            "fetch.wait.max.ms": 100,
        }
        command = ["kcat", "-b", self.bootstrap, "-u", "-E", "-f", _FORMAT]
        for name, value in settings.items():
            command += ["-X", f"{name}={value}"]
        if instance_id is not None:
            command += ["-X", f"group.instance.id={instance_id}"]
        return KcatMember([*command, "-G", group, *topics], cooperative=assignor == "cooperative-sticky")


def _arguments_of(record: Record) -> tuple[Headers, int | None, bool, bool]:
    """What must be equal for two records to share a run of kcat: headers, partition, keyed, and "empty is null"."""
    empty_is_null = record.value is None
    keyed = record.key is not None or empty_is_null
    assert not (empty_is_null and record.key == b""), "kcat cannot send an empty key with a null value"
    return record.headers, record.partition, keyed, empty_is_null


def parse(output: bytes) -> list[Received]:
    """The records in kcat's output, which may end in the middle of one."""
    records = []
    at = 0
    while (line_end := output.find(b"\n", at)) >= 0:
        topic, *numbers = output[at:line_end].split(b" ")
        partition, offset, timestamp_ms, key_size, value_size = map(int, numbers)
        key_at = line_end + 1
        value_at = key_at + max(key_size, 0)
        headers_at = value_at + max(value_size, 0)
        at = output.find(b"\n", headers_at) + 1
        if at == 0:
            break
        records.append(
            Received(
                topic.decode(),
                partition,
                offset,
                None if key_size < 0 else output[key_at:value_at],
                None if value_size < 0 else output[value_at:headers_at],
                _parse_headers(output[headers_at : at - 1]),
                timestamp_ms,
            )
        )
    return records


def _parse_headers(text: bytes) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for part in text.split(b",") if text else []:
        name, _, value = part.partition(b"=")
        headers.append((name.decode(), None if value == b"NULL" else value))
    return tuple(headers)


class KcatMember(Member):
    """Owns a kcat process and two threads that read what it prints."""

    def __init__(self, command: list[str], *, cooperative: bool) -> None:
        self._cooperative = cooperative
        self._lock = threading.Lock()
        self._output = b""
        self._said = ""
        self._assigned: frozenset[Partition] = frozenset()
        self._assignment_count = 0
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read_output, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_messages, args=(self._process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read_output(self, pipe: IO[bytes]) -> None:
        while data := pipe.read(65536):
            with self._lock:
                self._output += data

    def _read_messages(self, pipe: IO[bytes]) -> None:
        for raw in pipe:
            line = raw.decode(errors="replace")
            rebalanced = _REBALANCED.search(line)
            with self._lock:
                self._said += line
                if rebalanced is None:
                    continue
                partitions = frozenset((topic, int(number)) for topic, number in _PARTITION.findall(rebalanced[2]))
                if rebalanced[1] == "revoke":
                    self._assigned -= partitions
                    continue
                self._assigned = self._assigned | partitions if self._cooperative else partitions
                self._assignment_count += 1

    def assigned(self) -> frozenset[Partition]:
        with self._lock:
            return self._assigned

    def assignment_count(self) -> int:
        with self._lock:
            return self._assignment_count

    def received(self) -> list[Received]:
        with self._lock:
            return parse(self._output)

    def failure(self) -> KafkaFailure | None:
        with self._lock:
            return _failure(self._said) if self._process.poll() not in (None, 0, -15, -9) else None

    def kill(self) -> None:
        """End the process so that it cannot leave the group."""
        self._process.kill()
        self._finish()

    def leave(self) -> None:
        self._process.terminate()
        self._finish()

    def _finish(self) -> None:
        self._process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        with self._lock:
            self._assigned = frozenset()
