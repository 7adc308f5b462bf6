"""Apache Kafka's `kafka-reassign-partitions`. It runs where the jars are at hand."""

from __future__ import annotations

import json
from pathlib import Path

from conformance.conftest import MakeTopic
from support.kafka_jars import needs_jars, run_java

pytestmark = needs_jars

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def test_the_printed_rollback_can_be_executed(bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    """It names the data directory of each replica, which the tool then asks the brokers for."""
    topic = make_topic(partitions=1)
    topics, plan, rollback = (tmp_path / name for name in ("topics.json", "plan.json", "rollback.json"))
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generate: list[str | Path] = ["--generate", "--topics-to-move-json-file", topics, "--broker-list", "1"]
    plan.write_text(run_java(REASSIGN, "--bootstrap-server", bootstrap, *generate).splitlines()[-1])

    def execute(assignment: Path, *flags: str) -> list[str]:
        arguments: list[str | Path] = ["--reassignment-json-file", assignment, *flags]
        return run_java(REASSIGN, "--bootstrap-server", bootstrap, *arguments).splitlines()

    printed = next(line for line in execute(plan, "--execute") if line.startswith("{"))
    assert all(Path(path).is_absolute() for path in json.loads(printed)["partitions"][0]["log_dirs"])
    rollback.write_text(printed)
    execute(rollback, "--execute", "--additional")
    assert f"Reassignment of partition {topic}-0 is completed." in execute(rollback, "--verify")
