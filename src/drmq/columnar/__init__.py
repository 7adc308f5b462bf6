"""Record batches to columns: what a reader of millions of records needs, without an object per record.

`drmq.records` gives a `Record` for each record, which is right for a look-up and wrong for a table
scan: in Python an object costs more than the hundred bytes it stands for. A columnar engine does not
want objects anyway. It wants, per column, one run of bytes and one run of numbers that say where each
value begins, which is Arrow's layout. This package goes from one to the other directly.

The work has two halves. Per *batch*, in Python: walk the headers, drop what a reader must not see
(control batches, aborted transactions), check the checksum, decompress within a limit (`walk`). Per
*record*, in a builder: read the numbers, check each against the bytes that are there, copy key, value
and headers into the columns. The builder exists twice: `_decoder.c`, and `pure`, which is the same
in Python. Wherever the first could not be built the second serves, only slower. They are
interchangeable down to the wording of an error; tests and a fuzzer hold them against each other and
against `drmq.records`.

Always true of what comes out: offsets increase and lie within what was asked for; every piece stays
within its limits of rows and bytes, so that 32-bit offsets suffice; names of headers are UTF-8. Bytes
that are not what they claim to be raise `InvalidBatch`, and only that.

`arrow` makes a `pyarrow.RecordBatch` of it without copying. Nothing else here knows pyarrow, and
importing this package imports neither it nor numpy.
"""

from drmq.columnar.columns import BytesColumn, Columns, HeadersColumn
from drmq.columnar.implementation import IMPLEMENTATION
from drmq.columnar.walk import decode, iter_columns

__all__ = ["IMPLEMENTATION", "BytesColumn", "Columns", "HeadersColumn", "decode", "iter_columns"]
