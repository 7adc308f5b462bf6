"""What the options of a node mean to its parts."""

from __future__ import annotations

import pytest

from drmq.broker.component_options import peer_options_of
from drmq.broker.options import BrokerOptions


@pytest.mark.parametrize(
    ("election_timeout_ms", "peer_timeout_ms"), [(60_000, 1_000), (1_000, 1_000), (300, 300), (3, 3)]
)
def test_a_silent_node_is_noticed_within_an_election_timeout(election_timeout_ms: int, peer_timeout_ms: int) -> None:
    """In groups that sleep, its silence is all that there is to notice."""
    options = BrokerOptions(tick_ms=1, raft_heartbeat_ms=1, election_timeout_ms=election_timeout_ms)
    assert peer_options_of(options).peer_timeout_ms == peer_timeout_ms
    assert 1 <= peer_options_of(options).heartbeat_interval_ms <= 100
