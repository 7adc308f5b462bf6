"""Fuzz the port of a live broker: whatever it receives, it keeps serving, and its memory does not grow.

    python fuzz/fuzz_port.py [--count 20000] [--seed 0] [--bootstrap HOST:PORT --pid PID]

Frames start as valid requests of every API and version and are then damaged: bytes changed, cut out, repeated, lengths
that lie, frames glued together or cut in two. Some are plain noise. Each goes over a connection that is used until
the broker closes it. Every thousand frames a healthy producer writes a record and reads it back.

Wrong are: a broker that ends, a healthy client that is not served, a traceback in the log, an answer that no request
asked for, and more than 50 MiB of growth. The seed replays a run; without `--bootstrap` the broker is our own.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import socket
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

# The broker's process and the small client belong to the tests, which are not installed.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import psutil

from drmq.wire import APIS, ApiKey, read_request, read_request_header, write_request
from support.processes import BrokerProcess
from support.raw_client import RawClient, RequestFailed
from support.wire import batch, fetch, list_offsets, metadata, produce
from unit.wire.samples import filled

HEALTHY, ATTACKED = "healthy", "attacked"
CHECK_EVERY = 1_000
GROWTH_BYTES_MAX = 50 * 1024 * 1024
FRAMES_PER_CONNECTION_MAX = 50
NASTY_INTEGERS = (0, 1, -1, 2, 127, 128, 255, 32_767, -32_768, 65_535, 2**31 - 1, -(2**31), 2**24)


@dataclass
class Tally:
    """What happened in a run."""

    frames: int = 0
    connections: int = 0
    closed: int = 0
    answers: int = 0
    checks: int = 0
    growth_bytes: int = 0


def valid_requests() -> list[bytes]:
    """Framed requests of every API and version, with every field filled, and a few that really do something."""
    frames = []
    for api in APIS.values():
        if api.key in (ApiKey.PRODUCE, ApiKey.FETCH):
            continue
        for version in range(api.version_min, api.version_max + 1):
            for count, has_nulls in ((0, False), (1, False), (2, True)):
                message = filled(api.request, version, count, ATTACKED, has_nulls)
                frames.append(bytes(write_request(api.key, version, 7, "fuzz", message)))
    for version in range(3, 9):
        frames.append(produce(ATTACKED, batch([b"value" * 20, b"x"]), 7, version=version))
        frames.append(produce(ATTACKED, batch([b"idempotent"], producer_id=5, producer_epoch=0, base_sequence=0), 7))
    frames += [fetch(ATTACKED, 0, 7, wait_ms_max=0), fetch(ATTACKED, 0, 7, wait_ms_max=10)]
    frames += [list_offsets(ATTACKED, 3, -1, 7), metadata([ATTACKED], 9, 7), metadata(None, 1, 7)]
    return frames


class Attack:
    """Makes frames from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._valid = valid_requests()

    def data(self) -> bytes:
        """What to send next: one frame, several, or something that is none."""
        chance = self.random
        kind = chance.random()
        if kind < 0.05:
            return chance.randbytes(chance.randrange(1, 300))
        frame = bytearray(chance.choice(self._valid))
        if kind < 0.10:
            return bytes(frame)
        for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
            frame = self._damaged(frame)
        if chance.random() < 0.9 and len(frame) >= 4:
            # An honest length, so that the damage reaches the parser.
            frame[:4] = struct.pack(">i", len(frame) - 4)
        if chance.random() < 0.05:
            frame += chance.choice(self._valid)
        return bytes(frame)

    def _damaged(self, frame: bytearray) -> bytearray:
        chance = self.random
        at = chance.randrange(4, len(frame)) if len(frame) > 5 else 0
        kind = chance.randrange(6)
        if kind == 0:
            frame[at : at + 1] = chance.randbytes(1)
        elif kind == 1:
            del frame[at : at + chance.randrange(1, 9)]
        elif kind == 2:
            frame[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 3:
            frame[at : at + 4] = struct.pack(">i", chance.choice(NASTY_INTEGERS))
        elif kind == 4:
            frame[at : at + 2] = struct.pack(">H", chance.choice(NASTY_INTEGERS) & 0xFFFF)
        else:
            frame[at:at] = frame[at : at + chance.randrange(1, 40)]
        return frame


class Target:
    """The broker under attack, seen by a healthy client."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = (host, int(port))
        self._bootstrap = bootstrap
        self._process = psutil.Process(pid)
        with RawClient(bootstrap) as client:
            for topic in (HEALTHY, ATTACKED):
                # An attack may well delete topics; the healthy one then comes back, hence no error if it is there.
                with contextlib.suppress(RequestFailed):
                    client.create_topic(topic, 1)
        self.check()
        self.resident_bytes = self._resident()

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)

    @property
    def growth_bytes(self) -> int:
        return self._resident() - self.resident_bytes

    def check(self) -> None:
        """A record goes in and comes out."""
        with RawClient(self._bootstrap) as client:
            offset = client.produce(HEALTHY, [b"healthy"])
            found = client.fetch(HEALTHY, offset).records
            assert found == [(offset, b"healthy")], found


def run(target: Target, count: int, seed: int) -> Tally:
    """Send `count` pieces of data; raises `AssertionError` if the broker does not bear it."""
    attack = Attack(seed)
    tally = Tally()
    while tally.frames < count:
        before = tally.frames // CHECK_EVERY
        _attack_once(attack, target, tally)
        if tally.frames // CHECK_EVERY != before:
            _check(target, tally, seed)
    _check(target, tally, seed)
    return tally


def _check(target: Target, tally: Tally, seed: int) -> None:
    where = f"seed {seed}, before frame {tally.frames}"
    try:
        target.check()
    except (OSError, RequestFailed, AssertionError) as error:
        raise AssertionError(f"{where}: a healthy client is not served: {error!r}") from error
    tally.checks += 1
    tally.growth_bytes = target.growth_bytes
    assert tally.growth_bytes < GROWTH_BYTES_MAX, f"{where}: grown by {tally.growth_bytes} bytes"


def _attack_once(attack: Attack, target: Target, tally: Tally) -> None:
    """One connection, until the broker has enough of it or we have."""
    tally.connections += 1
    with socket.create_connection(target.address, timeout=10) as connection:
        for _ in range(attack.random.randrange(1, FRAMES_PER_CONNECTION_MAX)):
            data = attack.data()
            tally.frames += 1
            try:
                if attack.random.random() < 0.1 and len(data) > 1:
                    cut = attack.random.randrange(1, len(data))
                    connection.sendall(data[:cut])
                    connection.sendall(data[cut:])
                else:
                    connection.sendall(data)
                tally.answers += _take_answers(connection)
            except ConnectionError:
                tally.closed += 1
                return


def _take_answers(connection: socket.socket) -> int:
    """Read what is there without waiting for more; raises `ConnectionError` if it was closed."""
    connection.settimeout(0.0005)
    count = 0
    try:
        while True:
            data = connection.recv(262_144)
            if not data:
                raise ConnectionResetError
            count += 1
    except (TimeoutError, BlockingIOError):
        return count
    finally:
        connection.settimeout(10)


def self_test() -> None:
    """The requests that the damage starts from are sound, or all of them would fail for a dull reason."""
    for frame in valid_requests():
        view = memoryview(bytearray(frame[4:]))
        header = read_request_header(view)
        if header.api_key not in (ApiKey.PRODUCE, ApiKey.FETCH):
            read_request(view, header)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bootstrap")
    parser.add_argument("--pid", type=int)
    options = parser.parse_args()
    self_test()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        broker = None
        if options.bootstrap is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drmq-fuzz-")))
            broker = stack.enter_context(BrokerProcess(place / "data"))
        target = Target(options.bootstrap or broker.bootstrap, options.pid or broker.pid)  # type: ignore[union-attr]
        try:
            tally = run(target, options.count, options.seed)
        except AssertionError as error:
            print(error)
            return 1
        text = broker.log_text() if broker is not None else ""
    if "Traceback" in text:
        print(f"seed {options.seed}: the broker ran into a bug:\n{text[text.index('Traceback') - 300 :][:3_000]}")
        return 1
    print(f"{tally} in {time.monotonic() - started:.0f} s: fine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
