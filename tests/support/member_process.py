"""A group member in a process of its own, so that it can crash without leaving its group.

A library's member runs in a thread, and a thread cannot be killed. Run as a program, this module joins a group with one
of the drivers and prints its partitions, one JSON list per change; as a module it starts and kills that program.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.clients import CLIENTS, Partition


class MemberProcess:
    """Owns the process. `assigned` is what the member last said that it owns."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, instance_id: str = "") -> None:
        command = [sys.executable, "-W", "ignore", __file__, client, bootstrap, group, topic, instance_id]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))
        self._assigned: frozenset[Partition] = frozenset()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._assigned = frozenset((topic, number) for topic, number in json.loads(line))

    def assigned(self) -> frozenset[Partition]:
        return self._assigned

    def kill(self) -> None:
        """End the member with SIGKILL: its sockets close, and it says no goodbye."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main(client: str, bootstrap: str, group: str, topic: str, instance_id: str) -> None:
    member = CLIENTS[client](bootstrap).join(group, [topic], instance_id=instance_id or None)
    said = None
    while True:
        owned = sorted(member.assigned())
        if owned != said:
            print(json.dumps(owned), flush=True)
            said = owned
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
