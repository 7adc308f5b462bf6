"""The data source `drmq` as Spark sees it: a batch reader, a stream reader and two writers.

Spark makes several instances of these in several processes, and they share nothing but options. The
planner's side (`partitions`, `latestOffset`, …) runs beside the driver; `read` runs in workers, with a
`Range` from the planner in hand.

There is no `pushFilters` on purpose: `filters` says why, and what there is instead.
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

from drmq.spark.errors import OptionsError, plainly, plainly_each
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

    @plainly
    def schema(self) -> str:
        return ddl(table_options(self.options))

    @plainly
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

    @plainly
    def writer(self, schema: Any, overwrite: bool) -> Any:
        from drmq.spark.sink import BatchWriter

        return BatchWriter(write_options(self.options), schema, overwrite)

    @plainly
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from drmq.spark.sink import StreamWriter

        return StreamWriter(write_options(self.options), schema)


class BatchReader(DataSourceReader):
    """Reads what lies between the two ends that the options name, as they are when the query is planned."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        from drmq.spark.planning import plan_batch

        return [InputPartition(part) for part in plan_batch(self._options)]

    @plainly_each
    def read(self, partition: InputPartition) -> Iterator[Any]:
        from drmq.spark.reading import read_range

        return read_range(self._options, self._schema, partition.value)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one streaming query. In the planner it lives as long as the query."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._open: StreamProgress | None = None

    @property
    def _progress(self) -> StreamProgress:
        # Made when the planner first asks: the instance that goes to workers must stay without connections.
        if self._open is None:
            from drmq.spark.progress import StreamProgress

            self._open = StreamProgress(self._options)
        return self._open

    def initialOffset(self) -> dict[str, Any]:
        # No offsets: Spark asks again when it runs the first batch, and once more when it runs it a second time after
        # a crash. By then the options may stand for other offsets than those that the batch was planned with.
        return dict(BEGINNING)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        if self._options.rows_per_trigger_min is not None:
            return ReadMinRows(self._options.rows_per_trigger_min)
        return ReadAllAvailable()

    @plainly
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:
        # `Trigger.Once` asks for everything, whatever the options say.
        return self._progress.latest(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._progress.end_seen()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._progress.stop_at_present_end()

    @plainly
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        from drmq.spark.planning import plan_between

        return [InputPartition(part) for part in plan_between(self._options, start, end)]

    @plainly_each
    def read(self, partition: InputPartition) -> Iterator[Any]:
        from drmq.spark.reading import read_range

        return read_range(self._options, self._schema, partition.value)

    @plainly
    def commit(self, end: Mapping[str, Any]) -> None:
        self._progress.publish(end)

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class RefusedStream(DataSourceStreamReader):
    """A stream whose options cannot be used, which it says as soon as it is asked for anything.

    Where `streamReader` itself raises, Spark 4.3 adds an error of its own, about a variable of its own, behind ours.
    """

    def __init__(self, error: OptionsError) -> None:
        self._error = error

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @plainly
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:
        raise self._error

    @plainly
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    @plainly
    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error

    def stop(self) -> None:
        """Nothing was started."""
