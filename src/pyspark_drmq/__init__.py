"""The module in which Spark finds the data source `drmq`: it imports every `pyspark_*` module and reads
`DefaultSource`.

If one such module raises, Spark finds none of them, and every Spark session pays for this import. This module therefore
cannot fail and imports nothing heavy: without pyspark there is no `DefaultSource`.
"""

__all__ = ["DefaultSource"]

try:
    from drmq.spark.source import DrmqDataSource as DefaultSource
except ImportError:
    __all__.clear()
