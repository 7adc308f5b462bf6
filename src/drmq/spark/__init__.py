"""Topics as Spark tables and streams: the data source `drmq`, its sinks, and the way to a session.

The problem: a Spark user wants to read topics, transform them and write them back, with one
`pip install` and no jars. Spark 4 finds Python data sources in installed modules called `pyspark_*`;
`pyspark_drmq` is ours, and holds nothing but the name of the class in `source`.

Who runs what decides how this package is cut:

- *Planning* happens in Python processes beside the driver. `options` reads what the user wrote,
  `view` asks the brokers which partitions there are and where they begin and end, and `offsets`
  (pure) turns that into offset ranges. `source` puts them together.
- *Reading* happens in worker processes. Everything that one needs stands in a `Range`. `fetching`
  gets raw record batches from partition leaders, `drmq.columnar` turns them into columns, `arrow`
  gives these the shape of the table, `json_values` parses values that are JSON.
- *Writing* happens in worker processes too: `sink`, over librdkafka.
- `java`, `doctor` and `session` get a session started on a machine that may have no Java.
  `sql` answers one query over topics in the terminal.

Always true: planning is a pure function of logged offsets and options, so a batch that runs again
reads the same records; nothing is kept between the planner and the workers but what Spark carries;
every call to a broker has a deadline; importing this package imports neither pyspark nor pyarrow.

Left out, because Python data sources cannot do it: update mode, Real-time Mode, column pruning by
the optimizer, metrics of the source. The exactly-once sink needs transactions, and comes with them.
"""
