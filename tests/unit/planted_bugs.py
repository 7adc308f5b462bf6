"""Planted bugs in limits and answers: each undoes a mend, and the unit tests of that mend must notice.

    python tests/unit/planted_bugs.py            # all, a few minutes
    python tests/unit/planted_bugs.py sasl       # those whose name contains a word

Each is what the source did before, or would do if a line were lost: memory that is not counted, a refusal that does not
come, a request that is answered unlike Kafka. What a planted bug is, and how it finds its place:
`tests/support/planted_bugs.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The tests are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.letter_bugs import LETTER_BUGS
from support.planted_bugs import PlantedBug, TestedBug, chosen, try_tests

_BUGS = {
    "tests/unit/broker/cluster/test_assignments.py": [
        PlantedBug(
            "a partition that cannot be opened is not tried again",
            symbol="Assignments._bring",
            right="self._retry_later(group)",
            wrong="pass",
        ),
        PlantedBug(
            "all partitions that cannot be opened are tried at once",
            symbol="Assignments._retry",
            right="islice(self._retries, _AT_ONCE)",
            wrong="list(self._retries)",
        ),
    ],
    "tests/unit/kafka/test_create_partitions.py": [
        PlantedBug(
            "any number of replicas: a new topic",
            symbol="TopicService.create",
            right="check_capacity(catalog, facts, self.replicas_max)",
            wrong="pass",
        ),
        PlantedBug(
            "any number of replicas: new partitions",
            symbol="TopicService.add_partitions",
            right="check_capacity(catalog, facts, self.replicas_max)",
            wrong="pass",
        ),
    ],
    "tests/unit/kafka/test_alter_partition_reassignments.py": [
        PlantedBug(
            "any number of replicas: a reassignment",
            symbol="alter_partition_reassignments:_alter",
            right="check_capacity(catalog, facts, broker.topics.replicas_max)",
            wrong="pass",
        ),
    ],
    "tests/unit/kafka/test_unregister_broker.py": [
        PlantedBug(
            "any number of replicas: the removal of a node",
            symbol="unregister_broker:handle",
            right="check_drain(catalog, node_id, context.broker.topics.replicas_max)",
            wrong="pass",
        ),
    ],
    "tests/unit/catalog/test_capacity.py": [
        PlantedBug(
            "one replica more than allowed",
            symbol="check_capacity",
            right="present + count > replicas_max",
            wrong="present + count > replicas_max + 1",
        ),
        PlantedBug(
            "a move counts for nodes that have a replica",
            symbol="check_capacity",
            right="if assignment is None or node not in assignment.hosts",
            wrong="if True",
        ),
    ],
    "tests/scripts/test_group_scripts.py": [
        PlantedBug(
            "offsets of groups without members are kept as long as others",
            symbol="Administration._is_expired",
            right="if is_simple:",
            wrong="if False:",
        ),
        PlantedBug(
            "offsets of all groups expire as early as those without members",
            symbol="Administration._is_expired",
            right="record.group_id not in self._replicated.groups",
            wrong="True",
        ),
    ],
    "tests/unit/broker/cluster/test_membership.py": [
        PlantedBug(
            "every node that greets is dialled",
            symbol="Membership._may_connect_back",
            right="return (self._lacks_voters and not brokers) or hello.node_id in self._metadata.voting_nodes()",
            wrong="return True",
        ),
        PlantedBug(
            "a node that greets without the cluster id is dialled",
            symbol="Membership._may_connect_back",
            right="if hello.cluster_id is None or hello.cluster_id != self._store.cluster_id:",
            wrong="if False:",
        ),
        PlantedBug(
            "a restarted node does not dial unknown voters",
            symbol="Membership._may_connect_back",
            right="(self._lacks_voters and not brokers) or hello.node_id in self._metadata.voting_nodes()",
            wrong="self._lacks_voters and not brokers",
        ),
        PlantedBug(
            "a node that joined an older cluster dials nobody",
            symbol="Membership._may_connect_back",
            right="(self._lacks_voters and not brokers) or hello.node_id in self._metadata.voting_nodes()",
            wrong="hello.node_id in self._metadata.voting_nodes()",
        ),
        PlantedBug(
            "a joining node does not dial the voters",
            symbol="Membership._meet_voters",
            right="self.network.set_peer(node_id, host, port)",
            wrong="pass",
        ),
        PlantedBug(
            "an unknown node may ask anything",
            symbol="Membership.on_request",
            right="kind != Request.REGISTER",
            wrong="False",
        ),
    ],
    "tests/unit/transport/peers/test_strangers.py": [
        PlantedBug(
            "greetings of unknown nodes are always answered",
            symbol="Strangers.may_answer",
            right="return is_answered",
            wrong="return True",
        ),
        PlantedBug(
            "frames of unknown nodes are heard",
            symbol="Inbound.on_frame",
            right="if frame.type != FrameType.REQUEST and not self._network.is_peer(self._peer):",
            wrong="if False:",
        ),
    ],
    "tests/unit/transport/test_review_flow.py": [
        PlantedBug(
            "answers count when they are written, not when they are ready",
            symbol="Connection.flush_answers",
            right="self._out_bytes > _COUNTED_SIZE_MIN or self.unread_bytes or self._reasons & Pause.ANSWERS",
            wrong="self.unread_bytes or self._reasons & Pause.ANSWERS",
        ),
        PlantedBug(
            "a write that is half sent counts half",
            symbol="Connection.count_unread",
            right="max(unsent, self._writes_memory)",
            wrong="unsent",
        ),
        PlantedBug(
            "a view counts without what it is a part of",
            symbol="_memory_of",
            right="len(cast(Sized, buffer.obj)) if isinstance(buffer, memoryview) else len(buffer)",
            wrong="len(buffer)",
        ),
        PlantedBug(
            "a small write behind large ones is not counted",
            symbol="Connection.write_out",
            right="size > _JOINED_SIZE_MAX or self._writes",
            wrong="size > _JOINED_SIZE_MAX",
        ),
    ],
    "tests/unit/kafka/test_review_limits.py": [
        PlantedBug(
            "answers are small only beyond the limit",
            symbol="Listener.is_congested",
            right="self.options.response_bytes_max // 2",
            wrong="self.options.response_bytes_max",
        ),
        PlantedBug(
            "answers are empty only beyond twice the limit",
            symbol="Listener.is_flooded",
            right="self.options.response_bytes_max",
            wrong="2 * self.options.response_bytes_max",
        ),
        PlantedBug(
            "one answer may exceed what is left",
            symbol="exchange:Exchange.room",
            right="return min(wanted, listener.options.response_bytes_max - listener.blocked_bytes)",
            wrong="return wanted",
        ),
        PlantedBug(
            "any number of reads from disk at once",
            symbol="_DISK_READS_MAX",
            right="_DISK_READS_MAX = 4",
            wrong="_DISK_READS_MAX = 1_000",
        ),
    ],
    "tests/unit/catalog/test_broker_configs.py": [
        PlantedBug(
            "deleting a setting that is not set is a change",
            symbol="changed_broker_configs",
            right="if configs == before:",
            wrong="if False:",
        ),
        PlantedBug(
            "a setting that is deleted must exist",
            symbol="changed_broker_configs",
            right="_checked(name, value, node_id) for name, value in changes.items() if value is not None",
            wrong="_checked(name, value or '1', node_id) for name, value in changes.items()",
        ),
        PlantedBug(
            "the rate of leaders has no effect",
            symbol="copy_rate",
            right="if _is_throttled(topic, _LEADER_REPLICAS, partition, leader):",
            wrong="if False:",
        ),
        PlantedBug(
            "the rate of followers has no effect",
            symbol="copy_rate",
            right="if _is_throttled(topic, _FOLLOWER_REPLICAS, partition, follower):",
            wrong="if False:",
        ),
        PlantedBug(
            "the rate of all brokers goes before that of one",
            symbol="broker_config",
            right="configs.get(node_id, {}).get(name) or configs.get(None, {}).get(name)",
            wrong="configs.get(None, {}).get(name) or configs.get(node_id, {}).get(name)",
        ),
        PlantedBug(
            "all replicas are throttled",
            symbol="_is_throttled",
            right="replicas is None or (partition, node_id) in replicas",
            wrong="True",
        ),
    ],
    "tests/unit/broker/replication/test_learner_catch_up.py": [
        PlantedBug(
            "a new rate waits for the old one",
            symbol="LearnerCatchUp.on_rates_changed",
            right="self._paid_until = min(self._paid_until, self._now())",
            wrong="pass",
        ),
        PlantedBug(
            "the timer of the old rate grants a turn",
            symbol="LearnerCatchUp._give",
            right="if call_number != self._call_number:",
            wrong="if False:",
        ),
    ],
    "tests/unit/kafka/test_incremental_alter_configs.py": [
        PlantedBug(
            "throttles do not reach the copies",
            symbol="Broker._copy_rate",
            right="return copy_rate(catalog.broker_configs, topic, "
            "group.partition, self.node_id, node_of(member), rate)",
            wrong="return rate",
        ),
    ],
    "tests/unit/kafka/test_sasl.py": [
        PlantedBug(
            "a handshake is accepted",
            symbol="sasl_handshake:handle",
            right="ErrorCode.ILLEGAL_SASL_STATE",
            wrong="ErrorCode.NONE",
        ),
        PlantedBug(
            "an authentication is refused without a reason",
            symbol="sasl_authenticate:handle",
            right="SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, NO_SASL)",
            wrong="SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, '')",
        ),
        PlantedBug(
            "SASL is not advertised",
            symbol="APIS",
            right="Api(ApiKey.SASL_HANDSHAKE, 0, 1, flexible_from=NEVER),",
            wrong="",
        ),
    ],
    "tests/unit/kafka/test_list_config_resources.py": [
        PlantedBug(
            "resources: no brokers",
            symbol="list_config_resources:handle",
            right="if ResourceType.BROKER in wanted:",
            wrong="if False:",
        ),
        PlantedBug(
            "resources: version 0 gets all",
            symbol="list_config_resources:handle",
            right="if context.version >= _TYPES_FROM else set()",
            wrong="if True else set()",
        ),
        PlantedBug(
            "resources: an unknown type is ignored",
            symbol="list_config_resources:handle",
            right="if not wanted <= set(ResourceType):",
            wrong="if False:",
        ),
    ],
    "tests/unit/kafka/test_describe_producers.py": [
        PlantedBug(
            "producers: the first sequence, not the last",
            symbol="describe_producers:_describe",
            right="known.batches[-1].last_sequence",
            wrong="known.batches[0].last_sequence",
        ),
        PlantedBug(
            "producers: only the leader answers",
            symbol="Lookups.producers",
            right="if partition.failure is not None or not partition.state.is_current:",
            wrong="partition.check_serving()\nif partition.failure is not None or not partition.state.is_current:",
        ),
        PlantedBug(
            "producers: a failed replica answers",
            symbol="Lookups.producers",
            right="partition.failure is not None or not partition.state.is_current",
            wrong="not partition.state.is_current",
        ),
    ],
    "tests/unit/kafka/test_update_features.py": [
        PlantedBug(
            "features: a dry run is a run",
            symbol="update_features:handle",
            right="dry_run=request.validate_only",
            wrong="dry_run=False",
        ),
        PlantedBug(
            "features: the same one twice",
            symbol="update_features:_updates",
            right="if twice:",
            wrong="if False:",
        ),
        PlantedBug(
            "features: an unknown kind of upgrade",
            symbol="update_features:_updates",
            right="if unknown:",
            wrong="if False:",
        ),
        PlantedBug(
            "features: older versions get no results",
            symbol="update_features:handle",
            right="if context.version > 1:",
            wrong="if True:",
        ),
    ],
    "tests/unit/wire/test_apis.py": [
        PlantedBug(
            "Fetch 18 is not served",
            symbol="APIS",
            right="Api(ApiKey.FETCH, 4, 18, flexible_from=12)",
            wrong="Api(ApiKey.FETCH, 4, 17, flexible_from=12)",
        ),
    ],
    "tests/unit/kafka/test_metadata.py": [
        PlantedBug(
            "a new topic is shown before its leaders are known",
            symbol="when_led",
            right="return _wait(new, waited_for, answer) if waited_for else answer()",
            wrong="return answer()",
        ),
        PlantedBug(
            "a lost leader is waited for",
            symbol="NewPartitions.on_changed",
            right="added = range(before, topic.partition_count)",
            wrong="added = range(topic.partition_count)",
        ),
    ],
    "tests/unit/catalog/test_topic_configs.py": [
        PlantedBug(
            "unclean elections can be asked for",
            symbol="only_false",
            right='if value.lower() == "true" else boolean(value)',
            wrong="if False else boolean(value)",
        ),
        PlantedBug(
            "settings that would have no effect are accepted",
            symbol="config_definitions:one_of",
            right="return None if value in allowed else",
            wrong="return None if True else",
        ),
    ],
    "tests/unit/broker/partitions/test_partition.py": [
        PlantedBug(
            "old timestamps are accepted",
            symbol="Partition._append",
            right="header.max_timestamp > now_ms + config.after_max_ms "
            "or header.base_timestamp < now_ms - config.before_max_ms",
            wrong="header.max_timestamp > now_ms + config.after_max_ms",
        ),
        PlantedBug(
            "future timestamps are accepted",
            symbol="Partition._append",
            right="header.max_timestamp > now_ms + config.after_max_ms "
            "or header.base_timestamp < now_ms - config.before_max_ms",
            wrong="header.base_timestamp < now_ms - config.before_max_ms",
        ),
        PlantedBug(
            "timestamps are refused although the broker sets them",
            symbol="Partition._append",
            right="elif (",
            wrong="if (",
        ),
    ],
    "tests/unit/broker/partitions/test_partition_table.py": [
        PlantedBug(
            "jitter has no effect",
            symbol="partition_table:log_options",
            right="segment_ms=config.segment_ms - crc32(group.topic_id, group.partition) % (jitter_ms + 1)",
            wrong="segment_ms=config.segment_ms",
        ),
        PlantedBug(
            "the index interval has no effect",
            symbol="partition_table:log_options",
            right="index_interval_bytes=config.index_interval_bytes",
            wrong="index_interval_bytes=4096",
        ),
    ],
    "tests/unit/broker/services/test_recompression.py": [
        PlantedBug(
            "recompression: batches overtake each other",
            symbol="Recompression.is_needed",
            right="or bool(self._waiting[partition])",
            wrong="",
        ),
        PlantedBug(
            "recompression: the level has no effect",
            symbol="produced_batch:recompress",
            right="compress(codec, memoryview(plain)[HEADER_SIZE:], compression.level)",
            wrong="compress(codec, memoryview(plain)[HEADER_SIZE:])",
        ),
        PlantedBug(
            "recompression: records are not checked",
            symbol="produced_batch:recompress",
            right="check_produced(plain)",
            wrong="pass",
        ),
        PlantedBug(
            "recompression: the checksum of the producer stays",
            symbol="with_records",
            right="stamp_crc(out)",
            wrong="pass",
        ),
        PlantedBug(
            "recompression: two batches are decompressed at once",
            symbol="Recompression._recompressed",
            right="nullcontext() if codec == Codec.NONE else self._decompressing",
            wrong="nullcontext()",
        ),
        PlantedBug(
            "recompression: a caller has all turns",
            symbol="Recompression.__init__",
            right="FairQueue(_JOBS_MAX, 1)",
            wrong="FairQueue(1, 1)",
        ),
        PlantedBug(
            "recompression: a batch may grow without limit",
            symbol="Recompression._recompressed",
            right="if len(done) > size_max:",
            wrong="if False:",
        ),
        PlantedBug(
            "recompression: batches of one client side by side",
            symbol="Recompression.__init__",
            right="FairQueue(_JOBS_MAX, 1)",
            wrong="FairQueue(_JOBS_MAX, _JOBS_MAX)",
        ),
        PlantedBug(
            "recompression: any number of bytes waits",
            symbol="Recompression.submit",
            right="self.queued_bytes + len(batch) <= 2 * QUEUED_BYTES_MAX",
            wrong="True",
        ),
        PlantedBug(
            "recompression: a refused batch leaves no mark",
            symbol="Recompression._turned_away",
            right="partition.turn_away(read_header(held).producer_id, self._clock.wall_ms())",
            wrong="pass",
        ),
        PlantedBug(
            "recompression: the frame is held",
            symbol="Recompression.submit",
            right="bytearray(batch if has_room else batch[:HEADER_SIZE])",
            wrong="batch",
        ),
        PlantedBug(
            "recompression: producers are not slowed down",
            symbol="produce:_slow_down",
            right="if appends.recompression.is_full:",
            wrong="if False:",
        ),
        PlantedBug(
            "recompression: a paused producer is never read again",
            symbol="Recompression._work",
            right="if self._room_waiters and self.queued_bytes <= QUEUED_BYTES_MAX // 2:",
            wrong="if False:",
        ),
        PlantedBug(
            "recompression: not for other doors",
            symbol="Router._append",
            right="if appends.must_recompress(partition, view):",
            wrong="if False:",
        ),
        PlantedBug(
            "recompression: what cannot be decompressed is sent again",
            symbol="produced_batch:recompress",
            right="ErrorCode.INVALID_RECORD",
            wrong="ErrorCode.CORRUPT_MESSAGE",
        ),
    ],
    "tests/unit/server/cli/test_main.py": [
        PlantedBug(
            "--version prints nothing",
            symbol="cli:_show_version",
            right="click.echo(version_text())",
            wrong="pass",
        ),
        PlantedBug(
            "a bare drmq fails",
            symbol="cli:main",
            right="return 0 if is_root else EXIT_USAGE",
            wrong="return EXIT_USAGE",
        ),
        PlantedBug(
            "no suggestion for a mistyped command",
            symbol="Noun._guess",
            right='return f" Did you mean `{context.command_path} {meant}`?" if meant else ""',
            wrong='return ""',
        ),
        PlantedBug(
            "words of other tools are not known",
            symbol="Noun._guess",
            right='meant = self.synonyms.get(name.lower(), "")',
            wrong='meant = ""',
        ),
        PlantedBug(
            "-b before the noun has no effect",
            symbol="chosen_bootstrap",
            right='value = value or context.find_root().params.get("bootstrap")',
            wrong="pass",
        ),
        PlantedBug(
            "-b is accepted by commands that do not connect",
            symbol="RootGroup.resolve_command",
            right="not _connects(command, context)",
            wrong="False",
        ),
        PlantedBug(
            "hints ask another cluster",
            symbol="hints:with_bootstrap",
            right="if not _explicit:",
            wrong="if True:",
        ),
        PlantedBug(
            "a destructive command without a dry run",
            symbol="group_changes:delete",
            right="@dry_run_option",
            wrong="",
        ),
        PlantedBug(
            "errors of the system as numbers",
            symbol="os_error_text",
            right="reason = error.strerror or str(error) or type(error).__name__",
            wrong="reason = str(error)",
        ),
    ],
    "tests/unit/server/cli/test_group.py": [
        PlantedBug(
            "a lag that is not known is 0",
            symbol="lease_groups:_known",
            right="return number if number >= 0 else None",
            wrong="return max(number, 0)",
        ),
        PlantedBug(
            "a shard that does not answer is not mentioned",
            symbol="group_progress:warn",
            right="for failure in failures:",
            wrong="for failure in ():",
        ),
        PlantedBug(
            "leases that were not listed are not counted",
            symbol="cli.group:leases",
            right="held = sum(queue.held for queue in state.queues)",
            wrong="held = 0",
        ),
    ],
    "tests/unit/server/shell/test_grammar.py": [
        PlantedBug(
            "a message is split like the arguments of a command",
            symbol="grammar:_parse_send",
            right="message = rest.strip()",
            wrong='message = " ".join(rest.split())',
        ),
        PlantedBug(
            "a number is a delay without a unit",
            symbol="grammar:_parse_nack",
            right='if words[0].isdigit() and words[0] != "0":',
            wrong="if False:",
        ),
    ],
    "tests/unit/broker/cluster/test_controller.py": [
        PlantedBug(
            "the leaders of all partitions are compared at once",
            symbol="Controller._compare_leaders",
            right="end = min(first + left, topic.partition_count)",
            wrong="end = topic.partition_count",
        ),
        PlantedBug(
            "leaders of large topics are compared in part",
            symbol="Controller._compare_leaders",
            right="self._uncompared.appendleft((topic_id, end))",
            wrong="pass",
        ),
    ],
    "tests/unit/storage/test_snapshots.py": [
        PlantedBug(
            "first snapshots sync all directories above them",
            symbol="SnapshotStore.save",
            right="sync_ancestors(self._files, self._directory, self._known)",
            wrong="sync_ancestors(self._files, self._directory)",
        ),
        PlantedBug(
            "a directory that was removed is still taken as durable",
            symbol="make_directories",
            right="known.discard(directory)",
            wrong="pass",
        ),
    ],
    **LETTER_BUGS,
}
"""By the tests that must notice them."""

BUGS = [TestedBug(bug, tests) for tests, bugs in _BUGS.items() for bug in bugs]


def main(words: list[str]) -> int:
    """Try those whose names contain one of `words`, or all; the exit code tells if any was missed."""
    return try_tests(chosen(BUGS, words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
