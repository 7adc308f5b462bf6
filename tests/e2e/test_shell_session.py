"""The session of the shell, beside a broker in the process: what is shown, held, settled and given back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from drmq.client import NewTopic
from drmq.server.cli.options import ClusterChoice
from drmq.server.shell.grammar import parse
from drmq.server.shell.replies import Reply
from drmq.server.shell.session import HELD_MAX, NotNow, Session
from drmq.testing import Broker
from support.polling import PATIENCE_S


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterChoice]:
    with Broker() as broker:
        yield ClusterChoice(broker.bootstrap_servers, PATIENCE_S)


@pytest.fixture
def topic(cluster: ClusterChoice) -> str:
    """A topic of one partition with the messages 0 to 9."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.topics.create(NewTopic(name, 1))
    with Session(cluster) as session:
        for number in range(10):
            run(session, f"send {name} {number}")
    return name


def run(session: Session, line: str) -> list[str]:
    """The values of the messages that a command shows; the texts of other replies."""
    command = parse(line)
    assert command is not None
    return [shown(reply) for reply in session.execute(command)]


def shown(reply: Reply) -> str:
    is_message = isinstance(reply.facts, dict) and "value" in reply.facts
    return str(reply.facts["value"] if is_message else reply.text)


def begin(session: Session, line: str, count: int) -> list[str]:
    """The same for a command that is given up after so many replies, as by Ctrl-C."""
    command = parse(line)
    assert command is not None
    replies = session.execute(command)
    found = [next(replies).facts["value"] for _ in range(count)]
    replies.close()
    return found


def test_what_was_not_shown_alone_is_shown_next(cluster: ClusterChoice, topic: str) -> None:
    """The message that was being shown comes again: it is not known whether it was seen."""
    with Session(cluster, mode="single") as session:
        run(session, f"subscribe {topic}")
        assert begin(session, "poll", 3) == ["0", "1", "2"]
        assert run(session, "poll 2") == ["2", "3"]
        assert begin(session, "stream", 2) == ["4", "5"]
        assert run(session, "poll 1") == ["5"]


def test_what_was_not_shown_in_a_group_is_given_back(cluster: ClusterChoice, topic: str) -> None:
    """At once, and without a failed attempt; what was shown stays held."""
    with Session(cluster, group=topic) as session, Session(cluster, group=topic) as other:
        run(session, f"subscribe {topic} earliest")
        assert begin(session, "poll", 3) == ["0", "1", "2"]
        assert sorted(session.held) == [1, 2]
        run(other, f"subscribe {topic}")
        assert run(other, "poll 20") == [str(number) for number in range(2, 10)]
        assert {message.attempt for message in other.held.values()} == {1}


def test_what_is_held_is_given_back_at_the_end(cluster: ClusterChoice, topic: str) -> None:
    """And giving back is no failed attempt."""
    for _ in range(2):
        with Session(cluster, group=topic) as session:
            run(session, f"subscribe {topic} earliest")
            assert run(session, "poll 3") == ["0", "1", "2"]
            assert {message.attempt for message in session.held.values()} == {1}


def test_messages_are_chosen_by_their_numbers(cluster: ClusterChoice, topic: str) -> None:
    """The oldest one without a number; one that is not held is refused, and nothing changes."""
    with Session(cluster, group=topic) as session:
        run(session, f"subscribe {topic} earliest")
        run(session, "poll 5")
        assert run(session, "ack") == ["[1] acknowledged."]
        assert run(session, "reject 3") == ["[3] rejected."]
        assert run(session, "extend 2") == ["[2] extended."]
        with pytest.raises(NotNow, match=r"Message 3 is not held. These are: 2, 4, 5."):
            run(session, "ack 3")
        assert run(session, "nack 4 1h") == ["[4] released."]
        assert run(session, "group another") == [
            f"2 messages given back. The group is now another. `subscribe {topic}` continues with it."
        ]
        run(session, f"group {topic}")
        run(session, f"subscribe {topic}")
        # Message 4 of the log waits for an hour, 1 and 3 are done, and numbers go on.
        assert run(session, "poll 20") == ["1", "4", "5", "6", "7", "8", "9"]
        assert min(session.held) == 6


def test_a_message_is_acknowledged_after_it_was_shown(cluster: ClusterChoice, topic: str) -> None:
    """With autocommit: not before, so that one that was not printed is not lost."""
    with Session(cluster, group=topic) as session:
        run(session, "autocommit on")
        run(session, f"subscribe {topic} earliest")
        assert begin(session, "stream", 4) == ["0", "1", "2", "3"]
        assert not session.held
        assert run(session, "stream 2") == ["3", "4"]
        assert "5 records behind." in run(session, "lag")[0]


def test_a_session_holds_so_many(cluster: ClusterChoice, topic: str) -> None:
    """Then it asks for settlements, instead of taking all the work from others."""
    with Session(cluster, group=topic) as session:
        for number in range(HELD_MAX):
            run(session, f"send {topic} {number}")
        run(session, f"subscribe {topic} earliest")
        shown = run(session, "stream")
        assert len(shown) == HELD_MAX + 1
        assert shown[-1] == f"{HELD_MAX} messages are held. `ack`, `nack` or `reject` some to continue."
        with pytest.raises(NotNow, match="which is the most"):
            run(session, "poll")
        run(session, "ack all")
        assert len(run(session, "poll 20")) == 10
