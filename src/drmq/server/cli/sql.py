"""`drmq sql`: runs one query over topics and prints the result. `drmq.spark.sql` interprets the query."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drmq.server.cli.options import ClusterChoice, bootstrap_option, check_text, key_values, output_option
from drmq.server.cli.output import Column, Output
from drmq.server.cli.positions import POSITION_HELP, TIME_HELP, Position, parse_position, resolve

if TYPE_CHECKING:
    from drmq.spark.sql import Bounds

T = TypeVar("T")

_POLL_S = 0.1


@click.command()
@click.argument("query")
@click.option(
    "--from",
    "starts",
    multiple=True,
    type=parse_position,
    metavar="POSITION",
    help=f"Where to start: {POSITION_HELP} (may be repeated). TIME is {TIME_HELP}.  [default: begin]",
)
@click.option(
    "--until",
    "ends",
    multiple=True,
    type=parse_position,
    metavar="POSITION",
    help="Where to stop, in the same notation.  [default: end]",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="[TOPIC=]DDL",
    help="Fields of the values, such as `origin string, delay int`.  [default: inferred from a sample]",
)
@click.option("-n", "--count", "rows_max", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N",
              help="Print at most N rows.")  # fmt: skip
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*]]")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
@bootstrap_option
@output_option
def sql(
    query: str,
    starts: tuple[Position, ...],
    ends: tuple[Position, ...],
    schemas: tuple[str, ...],
    rows_max: int,
    master: str | None,
    settings: tuple[str, ...],
    cluster: ClusterChoice,
    output: Output,
) -> None:
    """Run a SQL query over topics, with Spark.

    `topic('NAME')` stands for a topic: the fields of its JSON values are columns, in addition to `_key`, `_value`,
    `_partition`, `_offset` and `_timestamp`. A topic is read up to its current end.

      drmq sql "select origin, count(*) from topic('flights') group by 1"
    """
    from drmq.spark.session import check_installed
    from drmq.spark.sql import parse

    check_installed()
    parsed = parse(check_text(query))
    given = _schemas(schemas, list(parsed.views))
    # Checked before Spark starts: an error about a missing topic should not take ten seconds.
    bounds = {topic: _bounds(cluster, topic, starts, ends) for topic in parsed.views}
    # Spark returns times in local time without a zone; here all of them are UTC.
    os.environ["TZ"] = "UTC"
    time.tzset()
    with _quiet_start() as log:
        spark = _waiting("starting Spark", lambda: _session(master, key_values(settings, "--conf")), log)
    try:
        columns, rows, is_cut = _answer(spark, parsed, bounds, given, rows_max, cluster)
    finally:
        spark.stop()
    output.rows([Column(name, name, right) for name, right in columns], rows, "No rows.")
    if is_cut:
        print(f"Only the first {rows_max:,} rows are shown. Raise --count to see more.", file=sys.stderr)


def _schemas(given: tuple[str, ...], topics: list[str]) -> dict[str, str]:
    """The schema of each topic: its own, or the one given for all."""
    found: dict[str, str] = {}
    for text in given:
        name, separator, rest = text.partition("=")
        if separator and name in topics:
            found[name] = rest
        else:
            found |= {topic: text for topic in topics if topic not in found}
    return found


def _bounds(cluster: ClusterChoice, topic: str, starts: tuple[Position, ...], ends: tuple[Position, ...]) -> Bounds:
    from drmq.model import TopicPartition
    from drmq.spark.sql import Bounds

    with cluster.admin() as admin:
        places = [TopicPartition(topic, partition.index) for partition in admin.topics.describe(topic).partitions]
        start = resolve(admin, places, starts or [Position("begin")])
        end = resolve(admin, start, ends or [Position("end")])
    return Bounds({place: min(start[place], end[place]) for place in end}, end)


def _session(master: str | None, settings: dict[str, str]) -> Any:
    from drmq.spark.session import spark_session

    # pyspark logs each error as JSON, with the whole stack, before it raises it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    quiet = {
        "spark.log.level": "OFF",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Two hundred tasks, Spark's default, are too many for a query in a terminal.
        "spark.sql.shuffle.partitions": "4",
    }
    return spark_session("drmq sql", master=master, settings={**quiet, **settings})


def _answer(
    spark: Any, parsed: Any, bounds: dict[str, Bounds], schemas: dict[str, str], rows_max: int, cluster: ClusterChoice
) -> tuple[list[tuple[str, bool]], list[dict[str, Any]], bool]:
    """Columns, each with whether it is numeric; rows; and whether there were more rows."""
    from pyspark.errors import PySparkException

    from drmq.spark.sql import create_view, plain

    try:
        for topic, view in parsed.views.items():
            create_view(
                spark,
                view,
                topic,
                cluster.bootstrap,
                bounds[topic],
                schema=schemas.get(topic),
                timeout_s=max(cluster.timeout_s, 30.0),
            )
        answer = spark.sql(parsed.text)
        found = _waiting_for_tasks(spark, lambda: answer.limit(rows_max + 1).collect())
    except PySparkException as error:
        raise click.ClickException(_words(error, parsed.views)) from None
    names = _unique(answer.columns)
    kinds = [field.dataType.typeName() for field in answer.schema]
    numbers = {"byte", "short", "integer", "long", "float", "double", "decimal"}
    columns = [(name, kind.partition("(")[0] in numbers) for name, kind in zip(names, kinds, strict=True)]
    rows = [dict(zip(names, map(plain, row), strict=True)) for row in found[:rows_max]]
    return columns, rows, len(found) > rows_max


def _unique(names: list[str]) -> list[str]:
    """Column names as unique keys: a second `count` becomes `count_2`."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


def _words(error: Any, views: dict[str, str]) -> str:
    """Spark's message without the plan and the stack below it, and with views replaced by the names of their topics."""
    text = str(error)
    for mark in ("\n== SQL", "\nJVM stacktrace", ";\n'", "\n\tat "):
        text = text.partition(mark)[0]
    for topic, view in views.items():
        text = text.replace(view, f"topic('{topic}')").replace(view.strip("`"), f"topic('{topic}')")
    return text.strip()


# ---- waiting -----------------------------------------------------------------------------------------


@contextmanager
def _quiet_start() -> Iterator[str]:
    """Redirect standard error to a file while the JVM starts, and for the JVM permanently. Yields the path of the file.

    Java and Spark print warnings at every start that are irrelevant here.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.NamedTemporaryFile(prefix="drmq-sql-", suffix=".log") as log:
        os.dup2(log.fileno(), 2)
        screen = os.fdopen(os.dup(kept), "w", buffering=1)
        before, sys.stderr = sys.stderr, screen
        try:
            yield log.name
        finally:
            sys.stderr = before
            os.dup2(kept, 2)
            os.close(kept)
            screen.close()


def _waiting(what: str, action: Callable[[], T], log: str) -> T:
    """Run an action that takes seconds, with a status line on a terminal. A failure includes the end of the log."""
    from drmq.model import DrmqError

    try:
        if not sys.stderr.isatty():
            return action()
        from rich.console import Console

        with Console(stderr=True).status(what):
            return action()
    except DrmqError:
        raise
    except Exception as error:
        with open(log, errors="replace") as said:
            tail = said.read()[-2000:]
        raise click.ClickException(
            f"Spark did not start: {error}\n{tail}\n`drmq spark doctor` checks the installation."
        ) from error


def _waiting_for_tasks(spark: Any, action: Callable[[], T]) -> T:
    """Run a query, with a progress bar of its tasks on a terminal."""
    if not sys.stderr.isatty():
        return action()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    answer: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(action())
        except BaseException as error:  # noqa: BLE001  # raised again by the waiting thread
            failure.append(error)

    worker = threading.Thread(target=run, name="query", daemon=True)
    worker.start()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tracker = spark.sparkContext.statusTracker()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tasks", total=None)
        while worker.is_alive():
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                total = sum(stage.numTasks for stage in known)
                bar.update(task, total=total, completed=sum(stage.numCompletedTasks for stage in known))
            time.sleep(_POLL_S)
    worker.join()
    if failure:
        raise failure[0]
    return answer[0]
