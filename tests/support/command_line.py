"""`drmq` as a process, against a broker in its environment."""

import json
import os
import subprocess
import sys
from typing import Any

from support.polling import PATIENCE_S


class Cli:
    """Runs `drmq` with a broker in the environment."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "DRMQ_BOOTSTRAP": bootstrap, "NO_COLOR": "1"}

    def run(self, *arguments: str, stdin: str | bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        data = stdin.encode() if isinstance(stdin, str) else stdin
        return subprocess.run(
            [sys.executable, "-m", "drmq", *arguments],
            input=data,
            capture_output=True,
            env=self.environment,
            timeout=PATIENCE_S,
            check=False,
        )

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> str:
        """The output of a command that must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def data(self, *arguments: str, stdin: str | bytes = b"") -> Any:
        """What a command prints as JSON."""
        return json.loads(self.ok(*arguments, "-o", "json", stdin=stdin))

    def refused(self, code: int, *arguments: str, stdin: str | bytes = b"") -> str:
        """The error of a command that must fail so."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stderr.decode()
