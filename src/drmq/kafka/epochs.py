"""What a client believes about a partition's leader, checked (KIP-320)."""

from __future__ import annotations

from drmq.broker import Partition
from drmq.model import ApiError, ErrorCode


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Raise `ApiError` if the client's leader epoch is older or newer than ours; -1 is no belief."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return
    if epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over")
    raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} has not begun")
