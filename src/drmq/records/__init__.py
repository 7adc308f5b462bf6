"""Record batches as bytes: the header, the checksum and, where it cannot be avoided, the records inside.

A batch is the unit everywhere in DRMQ: on the wire, in the log and between replicas. The hot path reads only the
header, which is the module `header`. The modules that look inside a batch (`record`, `compression`) serve code that
needs single records: looking up a time inside a batch, the internal topics, dumps and previews. They limit how much
they decompress.
"""

from drmq.records.compression import compress, decompress
from drmq.records.header import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    Codec,
    InvalidBatch,
    batch_is_intact,
    check_batch,
    check_replicated_batch,
    cut_batch,
    iter_batches,
    read_header,
    read_prefix,
    stamp,
    stamp_append_time,
    with_records,
)
from drmq.records.record import Record, decode_batch, encode_batch, find_timestamp, iter_records, sized_records

__all__ = [
    "CODEC_MASK",
    "HEADER_SIZE",
    "LENGTH_OVERHEAD",
    "MAGIC",
    "BatchHeader",
    "Buffer",
    "Codec",
    "InvalidBatch",
    "Record",
    "batch_is_intact",
    "check_batch",
    "check_replicated_batch",
    "compress",
    "cut_batch",
    "decode_batch",
    "decompress",
    "encode_batch",
    "find_timestamp",
    "iter_batches",
    "iter_records",
    "read_header",
    "read_prefix",
    "sized_records",
    "stamp",
    "stamp_append_time",
    "with_records",
]
