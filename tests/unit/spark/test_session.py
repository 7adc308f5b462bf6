"""What the commands set up before Spark starts, and what the doctor makes of a broker that is not there."""

from __future__ import annotations

from drmq.spark.doctor import FAILED, OK, WARNING, examine
from drmq.spark.session import all_brokers
from drmq.wire import ApiKey
from drmq.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from support.fake_broker import FakeBroker

NOBODY = "127.0.0.1:1"


def test_all_brokers_are_named_and_not_only_the_one_that_was() -> None:
    """Workers that start after that one died find the others."""
    broker = FakeBroker({})
    others = [MetadataResponseBroker(node_id=2, host="b", port=9093), MetadataResponseBroker(3, "::1", 9094)]
    own = MetadataResponseBroker(node_id=1, host=broker.address.host, port=broker.address.port)
    broker.answers[ApiKey.METADATA] = lambda request: MetadataResponse(brokers=[*others, own], controller_id=1)
    try:
        assert all_brokers(f"{NOBODY}, {broker.address}") == f"{NOBODY},{broker.address},b:9093,[::1]:9094"
    finally:
        broker.close()


def test_what_was_named_is_kept_where_nobody_answers() -> None:
    assert all_brokers(NOBODY, timeout_s=1.0) == NOBODY


def test_the_doctor_and_a_broker() -> None:
    """Spark is not ill because nobody has started a broker yet; but one that somebody named should be there."""
    broker = FakeBroker({})
    try:
        found = [finding for finding in examine(str(broker.address)) if finding.subject == "broker"]
        assert [finding.state for finding in found] == [OK]
    finally:
        broker.close()
    for is_named, state in ((True, FAILED), (False, WARNING)):
        (last,) = [finding for finding in examine(NOBODY, 1.0, is_named=is_named) if finding.subject == "broker"]
        assert last.state == state
        assert "drmq up" in last.remedy
    assert all(finding.subject != "broker" for finding in examine(None))
