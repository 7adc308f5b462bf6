"""Where Spark finds the data source `drmq`: it imports every `pyspark_*` module and looks for `DefaultSource`.

One such module that raises hides them all, and every Spark session pays for this import. So nothing
here can fail, and nothing heavy is loaded: without pyspark there is simply no `DefaultSource`.
"""

__all__ = ["DefaultSource"]

try:
    from drmq.spark.source import DrmqDataSource as DefaultSource
except ImportError:
    __all__.clear()
