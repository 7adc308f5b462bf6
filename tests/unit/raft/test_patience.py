"""How long a replica waits, and how soon it tries again, with a driver that knows which nodes work."""

from __future__ import annotations

import pytest

from drmq.raft import AppendAccepted, Heartbeat, LogIndex, PreVoteRequest, PreVoteResponse, Role, Term

from .nodes import ME, OPTIONS, THREE, TWO, Driver, storage

TIMEOUT_TICKS = OPTIONS.election_timeout_ticks
BEAT = Heartbeat(TWO, ME, Term(1), LogIndex(0), 0)


def follower() -> Driver:
    driver = Driver(storage(term=1))
    driver.receive(BEAT)
    assert driver.node.leader_id == TWO
    return driver


def ticks_until_campaign(driver: Driver, *arguments: object) -> int:
    for count in range(1, 1_000):
        driver.node.tick(*arguments)  # type: ignore[arg-type]
        if any(isinstance(message, PreVoteRequest) for message in driver.node.take_ready().messages):
            return count
    raise AssertionError("it does not campaign")


def test_a_follower_is_as_patient_as_it_is_told() -> None:
    assert TIMEOUT_TICKS <= ticks_until_campaign(follower()) < 2 * TIMEOUT_TICKS
    assert 5 * TIMEOUT_TICKS <= ticks_until_campaign(follower(), 5) < 10 * TIMEOUT_TICKS


def test_without_a_leader_there_is_nobody_to_be_patient_with() -> None:
    assert TIMEOUT_TICKS <= ticks_until_campaign(Driver(storage(term=1)), 5) < 2 * TIMEOUT_TICKS


def test_a_campaign_that_is_due_waits_until_it_may_begin() -> None:
    driver = follower()
    for _ in range(3 * TIMEOUT_TICKS):
        driver.node.tick(may_campaign=False)
    assert driver.node.role is Role.FOLLOWER
    assert ticks_until_campaign(driver) == 1


def test_a_patient_leader_waits_for_its_quorum_unless_it_knows_better() -> None:
    driver = Driver(storage()).lead()
    driver.receive(*(AppendAccepted(peer, ME, Term(1), LogIndex(1)) for peer in (TWO, THREE)))
    for _ in range(5 * TIMEOUT_TICKS - 1):
        driver.node.tick(5)
    assert driver.node.progress()
    driver.node.on_member_lost(TWO, 5 * TIMEOUT_TICKS)
    driver.node.on_member_lost(THREE, 5 * TIMEOUT_TICKS)
    driver.node.tick(5)
    assert driver.node.role is Role.FOLLOWER


def test_those_of_a_lower_rank_wait_for_those_before_them() -> None:
    waited = []
    for rank in range(3):
        driver = follower()
        driver.node.on_leader_lost(rank)
        waited.append(ticks_until_campaign(driver))
    assert waited[0] <= TIMEOUT_TICKS // 3 < waited[1] <= 2 * (TIMEOUT_TICKS // 3) < waited[2] <= TIMEOUT_TICKS


def test_campaigns_in_vain_become_rare_and_so_do_their_requests() -> None:
    driver = Driver(storage(term=1))
    waited = []
    for _ in range(8):
        before = driver.node.take_ready().number
        waited.append(ticks_until_next_round(driver))
        assert driver.node.take_ready().number > before
    assert all(TIMEOUT_TICKS <= ticks < 2 * TIMEOUT_TICKS for ticks in waited[:3])
    assert all(8 * TIMEOUT_TICKS <= ticks < 16 * TIMEOUT_TICKS for ticks in waited[5:])
    requests = driver.tick(8 * TIMEOUT_TICKS - 1)
    assert len(requests) <= 2 * 6, "they are repeated at intervals that double"


def ticks_until_next_round(driver: Driver) -> int:
    campaigns = driver.node._state.campaigns
    count = 0
    while driver.node._state.campaigns == campaigns:
        driver.tick()
        count += 1
    return count


def test_a_leader_ends_the_series_of_failures() -> None:
    driver = Driver(storage(term=1))
    driver.tick(40 * TIMEOUT_TICKS)
    driver.receive(BEAT)
    assert TIMEOUT_TICKS <= ticks_until_campaign(driver) < 2 * TIMEOUT_TICKS


def test_a_voter_that_returns_ends_the_wait() -> None:
    driver = Driver(storage(term=1))
    driver.tick(40 * TIMEOUT_TICKS)
    driver.node.on_voter_returned(0)
    driver.sent.clear()
    requests = driver.tick(TIMEOUT_TICKS // 3)
    assert {message.target for message in requests if isinstance(message, PreVoteRequest)} == {TWO, THREE}
    driver.receive(PreVoteResponse(TWO, ME, Term(1), Term(2), True))
    assert driver.node.role is Role.CANDIDATE


def test_a_voter_that_returns_does_not_hasten_a_first_campaign() -> None:
    """At a start there is a leader that only has to be heard."""
    driver = Driver(storage(term=1))
    driver.node.on_voter_returned(0)
    assert ticks_until_campaign(driver) >= TIMEOUT_TICKS


def test_a_replica_waits_for_another_that_is_expected_to_campaign() -> None:
    driver = Driver(storage(term=1))
    driver.node.delay_election(5)
    assert 5 * TIMEOUT_TICKS <= ticks_until_campaign(driver) < 10 * TIMEOUT_TICKS


@pytest.mark.parametrize("last_index", [0, 1, 2])
def test_a_replica_does_not_wait_for_another_that_lacks_entries(last_index: int) -> None:
    """After a clean shutdown the first node that stopped lacks what the others have, and cannot be elected."""
    driver = Driver(storage(terms=[1]))
    driver.node.delay_election(5)
    driver.receive(PreVoteRequest(TWO, ME, Term(1), Term(2), LogIndex(last_index), Term(min(last_index, 1))))
    waited = ticks_until_campaign(driver)
    if last_index == 0:
        assert waited <= TIMEOUT_TICKS // 3
    else:
        assert waited >= 5 * TIMEOUT_TICKS
