"""Topics as Spark tables and streams: the data source `drmq`, its sinks, and helpers that start a session.

The problem: a Spark user wants to read topics, transform them and write them back, with one `pip install` and no jars.
Spark 4 finds Python data sources in installed modules called `pyspark_*`; `pyspark_drmq` is ours, and contains nothing
but the name of the class in `source`.

The package is structured by the processes in which the parts run:

- *Planning* runs in Python processes next to the driver. `options` parses the user's options, `view` asks the brokers
  which partitions exist and where they begin and end, and `offsets` (pure) turns that into offset ranges. `source`
  combines them.
- *Reading* runs in worker processes. A `Range` contains everything that a worker needs. `fetching` gets raw record
  batches from partition leaders, `drmq.columnar` decodes them into columns, `table` gives these the schema of the
  table, `json_values` parses JSON values.
- *Writing* also runs in worker processes: `sink`, on librdkafka.
- `java`, `doctor` and `session` start a session on a machine that may have no Java. `sql` runs one query over topics
  for the command line.

Invariants: planning is a pure function of logged offsets and options, so a repeated batch reads the same records;
planner and workers share nothing but what Spark transports; every call to a broker has a deadline; importing this
package imports neither pyspark nor pyarrow.

Not here, because Python data sources do not support it: update mode, Real-time Mode, column pruning by the optimizer,
metrics of the source. The exactly-once sink needs transactions, and comes with them.
"""
