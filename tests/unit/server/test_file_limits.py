"""The files that a process may open are divided so that no part uses up those of another."""

from __future__ import annotations

import pytest

from drmq.server.file_limits import KEPT_BACK, LOGS_MAX, OPEN_FILES_MIN, PEERS_MAX, TooFewFiles, divided


@pytest.mark.parametrize("open_files", [OPEN_FILES_MIN, 512, 1024, 4096, 20_000, 1 << 20])
def test_logs_clients_and_peers_get_their_part_and_some_are_kept_back(open_files: int) -> None:
    limits = divided(open_files)
    peers = min((open_files - KEPT_BACK) // 8, PEERS_MAX)
    assert limits.logs + limits.connections + peers + KEPT_BACK == open_files
    assert limits.logs >= 40
    assert limits.connections >= 64


def test_a_usual_limit_has_room_for_ten_thousand_clients() -> None:
    assert divided(20_000).connections >= 10_000


def test_logs_do_not_open_files_without_end() -> None:
    assert divided(1 << 20).logs == LOGS_MAX


def test_a_process_that_may_open_too_few_files_is_told_what_to_do() -> None:
    with pytest.raises(TooFewFiles, match=r"may open 100 files.*at least 256.*ulimit -n"):
        divided(100)
