"""Settings that contradict each other are refused where they are made."""

from __future__ import annotations

import pytest

from drmq.groups import GroupOptions


@pytest.mark.parametrize(
    "values",
    [
        {"session_timeout_ms_min": 0},
        {"session_timeout_ms_min": 20, "session_timeout_ms_max": 10},
        {"initial_rebalance_delay_ms": -1},
        {"offsets_retention_ms": -1},
        {"group_size_max": 0},
        {"group_bytes_max": 0},
        {"offset_metadata_size_bytes_max": -1},
    ],
)
def test_nonsense_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        GroupOptions(**values)
