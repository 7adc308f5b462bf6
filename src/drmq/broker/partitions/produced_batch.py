"""The checks of a batch that a producer sends, before it gets its place in the log.

The header is checked (`records.header`), and the records of an uncompressed batch are walked in compiled code
(`columnar.framing`), because bytes that are no records would be acknowledged, and stop every consumer that reads them.
Compressed records are not decompressed: that would cost more than all else. A node without the compiled code checks
headers only.
"""

from __future__ import annotations

from drmq.columnar.framing import COMPILED, framing_fault
from drmq.model import ApiError, ErrorCode
from drmq.records import CODEC_MASK, BatchHeader, InvalidBatch, check_batch


def check_produced(batch: memoryview) -> BatchHeader:
    """The header of a producer's batch. Raises `ApiError`."""
    try:
        header = check_batch(batch)
    except InvalidBatch as error:
        raise ApiError(error.code, str(error)) from error
    if COMPILED is not None and not header.attributes & CODEC_MASK:
        fault = framing_fault(batch, COMPILED)
        if fault is not None:
            raise ApiError(ErrorCode.INVALID_RECORD, f"the batch holds bytes that are no records: {fault}")
    return header
