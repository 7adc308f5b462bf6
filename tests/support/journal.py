"""The journal of a node that is down, for tests about its logs."""

from __future__ import annotations

import json
from pathlib import Path

from drmq.storage import OS_FILES, Journal


def empty_journal(data_dir: Path) -> None:
    """Of a node that was killed: put back what its journal holds, as its next start would do first.

    What is damaged after that is to be found by the logs themselves. The journal would put right what is so young.
    """
    secret = json.loads((data_dir / "drmq.json").read_text())["journal_secret"]
    Journal(OS_FILES, str(data_dir), secret).close()
