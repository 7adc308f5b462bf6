"""`drmq spark shell`: a session, with short functions that read topics as DataFrames."""

from __future__ import annotations

import code
import re
import sys
from collections.abc import Mapping
from typing import Any

from drmq.spark.session import spark_session

_SETTINGS = {
    "spark.log.level": "ERROR",
    # Spark's default of two hundred tasks per aggregation is too many for experiments at a prompt.
    "spark.sql.shuffle.partitions": "8",
}


def names(bootstrap: str, master: str | None = None, settings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The names that are defined at the prompt. Starts the session."""
    spark = spark_session("drmq shell", master=master, settings={**_SETTINGS, **(settings or {})})

    def topic(name: str, **options: object) -> Any:
        """A topic as a table, from its start to its end. Options as for `spark.read.format("drmq")`."""
        return _load(spark.read, name, bootstrap, options)

    def stream(name: str, **options: object) -> Any:
        """A topic as a stream, from its end on. Options as for `spark.readStream.format("drmq")`."""
        return _load(spark.readStream, name, bootstrap, options)

    return {"spark": spark, "topic": topic, "stream": stream, "bootstrap": bootstrap}


def _load(reader: Any, name: str, bootstrap: str, options: Mapping[str, object]) -> Any:
    chosen = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, **options}
    return reader.format("drmq").options(**chosen).load()


def start_prompt(started: dict[str, Any], bootstrap: str) -> None:
    """Read and run lines until the end of input, with IPython's prompt if it is installed and input is a terminal."""
    from pyspark import __version__ as version

    banner = (
        f"Spark {version}, Python {sys.version.split()[0]}, brokers at {bootstrap}\n"
        "  topic('orders').show()                          a topic as a table\n"
        "  stream('orders', startingOffsets='earliest')    a topic as a stream\n"
        "  spark                                           the session; Ctrl-D exits"
    )
    try:
        if sys.stdin.isatty() and _ipython(banner, started):
            return
        _Console(started).interact(banner=banner, exitmsg="")
    finally:
        started["spark"].stop()


class _Console(code.InteractiveConsole):
    """A prompt that prints only the reason of an error, without the stack frames of Spark and Java."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        reason = None if error is None else reason_of(error)
        if reason is None:
            super().showtraceback()
        else:
            self.write(f"{reason}\n")


def reason_of(error: BaseException) -> str | None:
    """The message of this package in an error of Spark; None if there is none."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    found = re.findall(r"^drmq\.spark\.errors\.\w+: (.*?)(?=^ SQLSTATE|^\s*$|\Z)", str(error), re.MULTILINE | re.DOTALL)
    return str(found[-1]).rstrip() if found else None


def _ipython(banner: str, started: dict[str, Any]) -> bool:
    try:
        from IPython.terminal.embed import InteractiveShellEmbed
    except ImportError:
        return False
    InteractiveShellEmbed(banner1=banner, user_ns=started)()
    return True
