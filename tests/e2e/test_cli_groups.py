"""`drmq group` for lease groups: what is out, with whom, until when, and moving, changing and deleting them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import AcknowledgeType, ShareConsumer

from support.command_line import Cli
from support.polling import PATIENCE_S, eventually


@contextmanager
def member(cli: Cli, group: str, topic: str) -> Iterator[Any]:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": cli.environment["DRMQ_BOOTSTRAP"],
            "client.id": "packer",
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: Any) -> list[Any]:
    """The next messages."""
    deadline = time.monotonic() + PATIENCE_S
    while not (messages := list(consumer.poll(0.5))):
        assert time.monotonic() < deadline, "no message was delivered"
    return messages


def new_group(cli: Cli) -> str:
    """The name of a group that begins at the start of the log."""
    name = f"packing-{uuid.uuid4().hex[:8]}"
    cli.ok("group", "alter", name, "share.auto.offset.reset=earliest")
    return name


def test_what_is_out_and_with_whom(cli: Cli, topic: str) -> None:
    group = new_group(cli)
    cli.ok("produce", topic, "-p", "1", stdin="".join(f"{number}\n" for number in range(10)))
    with member(cli, group, topic) as consumer:
        messages = take(consumer)
        count = len(messages)
        [listed] = [row for row in cli.data("group", "ls", "--lag") if row["group"] == group]
        assert (listed["type"], listed["state"], listed["members"], listed["lag"]) == ("lease", "Stable", 1, 10)
        [lease] = cli.data("group", "leases", group)
        assert (lease["topic"], lease["partition"], lease["first_offset"]) == (topic, 1, 0)
        assert (lease["records"], lease["client_id"], lease["attempt"]) == (count, "packer", 1)
        assert 0 < lease["left_ms"] <= 30_000
        assert abs(lease["until_ms"] - lease["left_ms"] - time.time() * 1000) < 60_000
        [one] = cli.data("group", "members", group)
        assert (one["member_id"], one["out"], len(one["partitions"])) == (lease["member_id"], count, 3)
        found = cli.data("group", "describe", group)
        assert (found["out"], found["lag"], found["parked"], found["dead_letters"]) == (count, 10, 0, 0)
        assert found["dead_letter_topic"] == f"dlq.{group}"
        assert abs(found["oldest_ms"] - time.time() * 1000) < 600_000
        assert {"name": "share.auto.offset.reset", "value": "earliest", "source": "group"} in found["settings"]
        shown = cli.ok("group", "leases", group)
        assert f"0-{count - 1}" in shown if count > 1 else " 0 " in shown
        assert shown.endswith(f"\n{count} record{'s' if count > 1 else ''} out.\n")
        for name in ("reset", "delete"):
            more = ["--to", "begin"] if name == "reset" else []
            assert "NON_EMPTY_GROUP" in cli.refused(1, "group", name, group, *more, "--yes")
        consumer.acknowledge(messages[0], AcknowledgeType.ACCEPT)
        consumer.commit_sync(PATIENCE_S)
        lag = eventually(lambda: cli.data("group", "lag", group), lambda rows: sum(row["lag"] for row in rows) == 9)
        assert {row["partition"]: row["committed_offset"] for row in lag}[1] == 1
    assert cli.ok("group", "leases", group) == f"Nothing of group `{group}` is leased.\n"


def test_a_lease_group_is_moved_and_deleted(cli: Cli, topic: str) -> None:
    group = new_group(cli)
    cli.ok("produce", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(10)))
    assert cli.ok("consume", topic, "-g", group, "--lease").split() == [str(number) for number in range(10)]
    assert cli.data("group", "describe", group)["state"] == "Empty"
    preview = cli.data("group", "reset", group, "--to", "-2", "--dry-run")
    assert {row["partition"]: (row["from_offset"], row["to_offset"]) for row in preview}[0] == (10, 8)
    assert sum(row["lag"] for row in cli.data("group", "lag", group)) == 0
    cli.ok("group", "reset", group, "--to", "earliest", "--yes")
    assert sum(row["lag"] for row in cli.data("group", "lag", group)) == 10
    cli.ok("group", "reset", group, "--to", "0:7", "-t", topic, "--yes")
    assert cli.ok("consume", topic, "-g", group, "--lease").split() == ["7", "8", "9"]
    assert "progress in 3 partitions would be deleted" in cli.ok("group", "delete", group, "--dry-run")
    cli.ok("group", "delete", group, "--yes")
    assert "GROUP_ID_NOT_FOUND" in cli.refused(1, "group", "describe", group)


def test_settings_of_a_group(cli: Cli) -> None:
    """Set with units, checked, shown, and reset; of a group that does not exist yet."""
    group = f"packing-{uuid.uuid4().hex[:8]}"
    done = cli.data("group", "alter", group, "share.record.lock.duration.ms=20s", "share.delivery.count.limit=3")
    assert done["set"] == {"share.record.lock.duration.ms": "20000", "share.delivery.count.limit": "3"}
    assert "INVALID_CONFIG" in cli.refused(1, "group", "alter", group, "share.delivery.count.limit=99")
    assert "INVALID_CONFIG" in cli.refused(1, "group", "alter", group, "share.nonsense=1", "--dry-run")
    assert "INVALID_CONFIG" in cli.refused(1, "group", "alter", group, "--reset", "share.nonsense")
    cli.ok("group", "alter", group, "--reset", "share.delivery.count.limit")


def test_leases_of_a_classic_group(cli: Cli, topic: str) -> None:
    """There are none, and that is said."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    cli.ok("produce", topic, stdin="x\n")
    cli.ok("consume", topic, "-g", group)
    assert f"`{group}` is a classic group" in cli.refused(1, "group", "leases", group)
    assert cli.ok("group", "members", group).startswith(f"Group `{group}` has no members.")
    assert "0 records behind." in cli.ok("group", "describe", group)
    [listed] = [row for row in cli.data("group", "ls", "--lag") if row["group"] == group]
    assert (listed["type"], listed["lag"], listed["out"], listed["dead_letters"]) == ("classic", 0, None, None)
