"""The data source `drmq` as Spark sees it: a batch reader, a stream reader and two writers.

Spark creates several instances of these in several processes, which share nothing but options. The planner's methods
(`partitions`, `latestOffset`, …) run next to the driver; `read` runs in workers, with a `Range` from the planner.

There is deliberately no `pushFilters`: see `filters` for the reason and the alternative.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from drmq.spark.errors import OptionsError, user_facing, user_facing_iterator
from drmq.spark.offsets import BEGINNING
from drmq.spark.options import ReadOptions, read_options, table_options, write_options
from drmq.spark.table import check_user_schema, ddl

if TYPE_CHECKING:
    from drmq.spark.progress import StreamProgress

_log = logging.getLogger(__name__)


class DrmqDataSource(DataSource):
    """`spark.read.format("drmq")`, `readStream`, `df.write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "drmq"

    @user_facing
    def schema(self) -> str:
        return ddl(table_options(self.options))

    @user_facing
    def reader(self, schema: Any) -> DataSourceReader:
        options = read_options(self.options, is_stream=False)
        check_user_schema(schema, options.table)
        return BatchReader(options, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        try:
            options = read_options(self.options, is_stream=True)
            check_user_schema(schema, options.table)
        except OptionsError as error:
            return RefusedStream(error)
        return StreamReader(options, schema)

    @user_facing
    def writer(self, schema: Any, overwrite: bool) -> Any:
        from drmq.spark.sink import BatchWriter

        return BatchWriter(write_options(self.options), schema, overwrite)

    @user_facing
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from drmq.spark.sink import StreamWriter

        return StreamWriter(write_options(self.options), schema)


class BatchReader(DataSourceReader):
    """Reads the records between the start and the end given by the options, evaluated when the query is planned."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    @user_facing
    def partitions(self) -> Sequence[InputPartition]:
        from drmq.spark.planning import plan_batch

        return [InputPartition(part) for part in plan_batch(self._options)]

    @user_facing_iterator
    def read(self, partition: InputPartition) -> Iterator[Any]:
        from drmq.spark.reading import read_range

        return read_range(self._options, self._schema, partition.value)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one streaming query. In the planner, it exists as long as the query."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._open: StreamProgress | None = None

    @property
    def _progress(self) -> StreamProgress:
        # Created when the planner first needs it: the instance that is sent to workers must have no connections.
        if self._open is None:
            from drmq.spark.progress import StreamProgress

            self._open = StreamProgress(self._options)
        return self._open

    def initialOffset(self) -> dict[str, Any]:
        # No offsets: Spark asks again when it runs the first batch, and once more when it repeats it after a crash. By
        # then the options may stand for other offsets than those that the batch was planned with.
        return dict(BEGINNING)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        if self._options.rows_per_trigger_min is not None:
            return ReadMinRows(self._options.rows_per_trigger_min)
        return ReadAllAvailable()

    @user_facing
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:
        # `Trigger.Once` reads everything, whatever the options say.
        return self._progress.latest(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._progress.end_seen()

    @user_facing
    def prepareForTriggerAvailableNow(self) -> None:
        self._progress.stop_at_present_end()

    @user_facing
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        from drmq.spark.planning import plan_between

        return [InputPartition(part) for part in plan_between(self._options, start, end)]

    @user_facing_iterator
    def read(self, partition: InputPartition) -> Iterator[Any]:
        from drmq.spark.reading import read_range

        return read_range(self._options, self._schema, partition.value)

    @user_facing
    def commit(self, end: Mapping[str, Any]) -> None:
        self._progress.publish(end)

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class RefusedStream(DataSourceStreamReader):
    """A stream with invalid options, which raises the error at the first call.

    If `streamReader` itself raised, Spark 4.3 would append an unrelated error about one of its own variables.
    """

    def __init__(self, error: OptionsError) -> None:
        self._error = error

    @user_facing
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @user_facing
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:
        raise self._error

    @user_facing
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    @user_facing
    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error

    def stop(self) -> None:
        """Nothing was started."""
