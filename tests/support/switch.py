"""A network switch in a process: one TAP device per node, frames passed on as the rules of their link say.

    python switch.py SEED PORT:FD PORT:FD ...

Each node runs in a network namespace whose only way out is its TAP device; this process has their file descriptors. The
last byte of a hardware address is the node's number, so there is nothing to learn. Needs no kernel module but the TAP
device, where netem and nftables are often missing, and loses exactly what the rules say.
"""

from __future__ import annotations

import heapq
import os
import random
import selectors
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.link_rules import LinkRules

FRAME_BYTES_MAX = 65_600
QUEUED_S_MAX = 0.4
"""On a slow link: how much may wait before frames are lost, as in a router."""
_BATCH = 64


class Switch:
    """Passes frames between file descriptors. Never blocks on one of them: a full device loses the frame."""

    def __init__(self, ports: dict[int, int], seed: int) -> None:
        self.rules = LinkRules()
        self.passed = self.lost = 0
        self._ports = ports
        self._chance = random.Random(seed)
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._number = 0
        self._free_at: dict[tuple[int, int], float] = {}

    def on_frame(self, sender: int, frame: bytes) -> None:
        if frame[0] & 1:
            for receiver in self._ports:
                if receiver != sender:
                    self._pass(sender, receiver, frame)
        elif frame[5] in self._ports:
            self._pass(sender, frame[5], frame)

    def _pass(self, sender: int, receiver: int, frame: bytes) -> None:
        rule = self.rules.get(sender, receiver)
        if rule.cut or (rule.loss and self._chance.random() < rule.loss):
            self.lost += 1
            return
        copies = 2 if rule.duplicate and self._chance.random() < rule.duplicate else 1
        delay_s = rule.delay_ms / 1_000
        if rule.jitter_ms:
            delay_s = max(0.0, delay_s + self._chance.uniform(-rule.jitter_ms, rule.jitter_ms) / 1_000)
        if rule.bytes_per_s:
            now = time.monotonic()
            start = max(now, self._free_at.get((sender, receiver), 0.0))
            if start - now > QUEUED_S_MAX:
                self.lost += 1
                return
            self._free_at[sender, receiver] = start + len(frame) / rule.bytes_per_s
            delay_s += self._free_at[sender, receiver] - now
        for _ in range(copies):
            if delay_s <= 0:
                self._write(receiver, frame)
            else:
                self._number += 1
                heapq.heappush(self._waiting, (time.monotonic() + delay_s, self._number, receiver, frame))

    def _write(self, receiver: int, frame: bytes) -> None:
        try:
            os.write(self._ports[receiver], frame)
            self.passed += 1
        except OSError:
            # The device is full, or down because its node is being set up: lost, as on any wire.
            self.lost += 1

    def release_due(self) -> float | None:
        """Pass on what has waited long enough; the seconds until the next, None if nothing waits."""
        waiting = self._waiting
        while waiting:
            left = waiting[0][0] - time.monotonic()
            if left > 0:
                return left
            _, _, receiver, frame = heapq.heappop(waiting)
            self._write(receiver, frame)
        return None


def main(seed: int, ports: dict[int, int]) -> None:
    """Run until standard input ends."""
    switch = Switch(ports, seed)
    selector = selectors.DefaultSelector()
    for port, descriptor in ports.items():
        os.set_blocking(descriptor, False)
        selector.register(descriptor, selectors.EVENT_READ, port)
    selector.register(0, selectors.EVENT_READ, None)
    commands = b""
    while True:
        for key, _ in selector.select(switch.release_due()):
            if key.data is None:
                received = os.read(0, 65_536)
                if not received:
                    return
                commands += received
                while b"\n" in commands:
                    line, _, commands = commands.partition(b"\n")
                    switch.rules = LinkRules.from_line(line)
                    os.write(1, b"%d %d\n" % (switch.passed, switch.lost))
                continue
            for _ in range(_BATCH):
                try:
                    frame = os.read(key.fd, FRAME_BYTES_MAX)
                except OSError:
                    break
                switch.on_frame(key.data, frame)


if __name__ == "__main__":
    main(int(sys.argv[1]), {int(port): int(fd) for port, _, fd in (word.partition(":") for word in sys.argv[2:])})
