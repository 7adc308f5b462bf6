"""Record batches to columns, for readers of millions of records, without creating an object per record.

`drmq.records` creates a `Record` for each record, which is right for a lookup and wrong for a table scan: in Python an
object costs more than the hundred bytes that it represents. A columnar engine does not need objects anyway. It needs,
per column, one buffer of bytes and one buffer of numbers that say where each value begins, which is Arrow's layout.
This package converts directly from one to the other.

The work has two parts. Per *batch*, in Python: walk the headers, drop what a reader must not see (control batches,
aborted transactions), check the checksum, decompress within a limit (`walk`). Per *record*, in a builder: read the
numbers, check each against the bytes that are there, copy key, value and headers into the columns. There are two
builders: `_decoder.c`, and `pure`, which is the same in Python. If the first could not be compiled, the second is used,
which is only slower. They are interchangeable down to the wording of an error; tests and a fuzzer compare them with
each other and with `drmq.records`.

Always true of the result: offsets increase and lie within the requested range; every piece stays within its limits of
rows and bytes, so that 32-bit offsets suffice; names of headers are UTF-8. Invalid bytes raise `InvalidBatch`, and no
other exception.

`arrow` turns the result into a `pyarrow.RecordBatch` without copying. No other module here uses pyarrow, and importing
this package imports neither pyarrow nor numpy.
"""

from drmq.columnar.columns import BytesColumn, Columns, HeadersColumn
from drmq.columnar.implementation import IMPLEMENTATION
from drmq.columnar.walk import decode, iter_columns

__all__ = ["IMPLEMENTATION", "BytesColumn", "Columns", "HeadersColumn", "decode", "iter_columns"]
