"""Planted bugs: each is put into a copy of the broker, and the tests with real processes must notice.

A crash test that never fails proves nothing. Run this when the broker, the storage or these tests change:

    python tests/e2e/planted_bugs.py            # all, about ten minutes
    python tests/e2e/planted_bugs.py dedup      # those whose name contains a word

What a planted bug is, and how it finds its place: `tests/support/planted_bugs.py`. What SIGKILL cannot show (a missing
sync: the kernel keeps what it was given) is not here but in `tests/unit/storage/planted_bugs.py`, on a disk that loses
power.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The tests are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.planted_bugs import PlantedBug, TestedBug, chosen, try_tests

CRASH, STEPS, SHUTDOWN, FULL, LIMITS = (
    f"tests/e2e/test_{name}.py" for name in ("crash", "fsync_steps", "shutdown", "disk_full", "limits")
)
CLI, CONSUME, PRODUCE, APIS = (
    f"tests/e2e/test_{name}.py" for name in ("cli", "cli_consume", "cli_produce", "cluster_apis")
)
LOCAL = "tests/e2e/test_local.py tests/unit/server/test_local_file.py"
REDRIVE = "tests/e2e/test_redrive.py::test_every_letter_is_moved_once_although_the_driving_node_is_killed"
WALK = f"{STEPS}::test_killed_before_every_step"

BUGS = [
    TestedBug(
        PlantedBug(
            "dedup table not loaded",
            symbol="load_producers",
            right="start = log.start_offset if found is None else max(found.offset, log.start_offset)",
            wrong="return ProducerTable()",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "dedup table not rebuilt after the snapshot",
            symbol="load_producers",
            right="table.apply(header, now_ms)",
            wrong="pass",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "dedup window of 1",
            symbol="BATCHES_KEPT",
            right="BATCHES_KEPT = 5",
            wrong="BATCHES_KEPT = 1",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "dedup: retry answered as out of order",
            symbol="ProducerTable.find_repeat",
            right="return batch",
            wrong="continue",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "dedup: retry answered with the end of the log",
            symbol="Partition._append",
            right="return Appended(repeat.base_offset, repeat.next_offset, -1)",
            wrong="return Appended(self.next_offset, self.next_offset, -1)",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "high watermark beyond what is flushed",
            symbol="Partition.on_written",
            right="_release(self._write_waiters, end_offset)",
            wrong="""
                _release(self._write_waiters, end_offset)
                self.high_watermark = end_offset
            """,
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "acks=all answered before the append",
            symbol="Partition.when_durable",
            right="if self.acked_offset >= next_offset:",
            wrong="if True:",
        ),
        tests=f"{CRASH} {WALK}",
    ),
    TestedBug(
        PlantedBug(
            "acks=1 answered before the append",
            symbol="Partition.when_written",
            right="if self.log.end_offset >= next_offset and not self._write_waiters:",
            wrong="if True:",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "acks=all answered together with acks=1",
            symbol="Partition.on_written",
            right="_release(self._write_waiters, end_offset)",
            wrong="""
                _release(self._write_waiters, end_offset)
                _release(self._flush_waiters, end_offset)
            """,
        ),
        tests=f"{STEPS}::test_failed_sync_fences_the_partition_until_a_restart",
    ),
    TestedBug(
        PlantedBug(
            "states not replayed",
            symbol="MachineState.replay_to",
            right="self.applied_offset = replay_batches(data, self.machine.replay, self.applied_offset)",
            wrong="self.applied_offset = replay_batches(data, lambda key, value: None, self.applied_offset)",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "group offsets not written",
            symbol="Coordinator._add",
            right="if not step.records:",
            wrong="if not step.records or self.has_soft_state:",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "deletion of a topic not written",
            symbol="TopicService.delete_found",
            right='await self._metadata.decide(delete, f"the deletion of {what}")',
            wrong="delete(self._metadata.catalog)",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "start of the log not written",
            symbol="SegmentLog._record_start",
            right="""
                try:
                    write_start(self._files, f"{self._directory}/{START_NAME}", offset)
                except OSError as error:
                    raise self._append_failed(error) from error
            """,
            wrong="",
        ),
        tests=f"{CRASH} {WALK}",
    ),
    TestedBug(
        PlantedBug(
            "producer ids given out again",
            symbol="Catalog.replay",
            right="self.next_producer_id = max(self.next_producer_id, fact.next_id)",
            wrong="pass",
        ),
        tests=CRASH,
    ),
    TestedBug(
        PlantedBug(
            "torn tail not cut",
            symbol="_cut_tail",
            right="files.truncate(handle, position)",
            wrong="",
        ),
        tests=SHUTDOWN,
    ),
    TestedBug(
        PlantedBug(
            "damage cut like a torn tail",
            symbol="_open_tail",
            right="if tail.end_offset < promised:",
            wrong="if False:",
        ),
        tests=SHUTDOWN,
    ),
    TestedBug(
        PlantedBug(
            "missing partition taken for a new one",
            symbol="DiskLogs.open_log",
            right="if not self._files.is_directory(path):",
            wrong="if False:",
        ),
        tests=SHUTDOWN,
    ),
    TestedBug(
        PlantedBug(
            "damaged metadata taken for none",
            symbol="Broker._open_metadata",
            right='raise StateUnreadable(f"the metadata log cannot be read: {problem}") from error',
            wrong="opened = self.store.create_log('other', METADATA_TOPIC.topic_id, 0, log_options(config))",
        ),
        tests=SHUTDOWN,
    ),
    TestedBug(
        PlantedBug(
            "data directory not locked",
            symbol="OsFiles.lock",
            right="fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            wrong="pass",
        ),
        tests=SHUTDOWN,
    ),
    TestedBug(
        PlantedBug(
            "node id not compared",
            symbol="DataDirectory._identify",
            right='if found["node_id"] != self.node_id:',
            wrong="if False:",
        ),
        tests=SHUTDOWN,
    ),
    TestedBug(
        PlantedBug(
            "shutdown not marked as clean",
            symbol="SegmentLog.close",
            right="self._write_flushed(self._flushed(is_clean=True))",
            wrong="pass",
        ),
        tests=SHUTDOWN,
    ),
    TestedBug(
        PlantedBug(
            "shutdown does not wait for what is in flight",
            symbol="Listener.close",
            right="while any(c.is_busy for c in self.connections)",
            wrong="while False and any(c.is_busy for c in self.connections)",
        ),
        tests=SHUTDOWN,
    ),
    TestedBug(
        PlantedBug(
            "failed sync tried again",
            symbol="SegmentLog.sync",
            right="""
                except OSError as error:
                    raise self._fence(f"sync failed: {error.strerror}") from error
            """,
            wrong="""
                except OSError:
                    self._files.sync(segment.file.handle)
            """,
        ),
        tests=f"{STEPS}::test_failed_sync_fences_the_partition_until_a_restart",
    ),
    TestedBug(
        PlantedBug(
            "failed append answered as written",
            symbol="Partition.on_replica_failed",
            right="partial(self._stop_leading, ErrorCode.KAFKA_STORAGE_ERROR)",
            wrong="partial(self._stop_leading, ErrorCode.NONE)",
        ),
        tests=FULL,
    ),
    TestedBug(
        PlantedBug(
            "full disk fences the log",
            symbol="Replica._fail",
            right="if self._is_over or self._restarting or self._stopped:",
            wrong="if True:",
        ),
        tests=FULL,
    ),
    TestedBug(
        PlantedBug(
            "answers are written whether or not they are read",
            symbol="Connection.pause_writing",
            right="""
                self.answers_blocked_since = self._listener.now
                self.count_unread()
                self.pause(Pause.ANSWERS)
            """,
            wrong="pass",
        ),
        tests=LIMITS,
    ),
    TestedBug(
        PlantedBug(
            "memory for a frame is taken when it is announced",
            symbol="Connection._start_partial",
            right="self._read_frame_size()",
            wrong="""
                self._read_frame_size()
                self._partial.extend(bytes(max(0, self._frame_size - len(self._partial))))
            """,
        ),
        tests=LIMITS,
    ),
    TestedBug(
        PlantedBug(
            "no time-out for a request",
            symbol="Listener._sweep",
            right="if connection.frame_since and now - connection.frame_since > receive_s:",
            wrong="if False:",
        ),
        tests=LIMITS,
    ),
    TestedBug(
        PlantedBug(
            "a line for every refused connection",
            symbol="Listener.on_refused",
            right='"repeat_key": "closed a connection", ',
            wrong="",
        ),
        tests=LIMITS,
    ),
    TestedBug(
        PlantedBug(
            "no limit of what waits for the disk",
            symbol="KafkaServer._wait_for_room",
            right="connection.pause(Pause.DISK)",
            wrong="return",
        ),
        tests=LIMITS,
    ),
    TestedBug(
        PlantedBug(
            "no limit of connections",
            symbol="Listener.on_connected",
            right="if len(self.connections) >= self.options.connections_max:",
            wrong="if False:",
        ),
        tests=LIMITS,
    ),
    TestedBug(
        PlantedBug(
            "a copied local cluster uses the data of its original",
            symbol="ClusterFile._replaced",
            right="return own",
            wrong="return written",
        ),
        tests=LOCAL,
    ),
    TestedBug(
        PlantedBug(
            "nodes of a local cluster are recognised by their path only",
            symbol="process_is_ours",
            right="holds_lock = _holds_lock(pid, data_dir)",
            wrong="holds_lock = None",
        ),
        tests=LOCAL,
    ),
    TestedBug(
        PlantedBug(
            "a copied local cluster starts beside its original",
            symbol="LocalCluster._at_home",
            right="if not is_free(address.host, address.port):",
            wrong="if False:",
        ),
        tests=LOCAL,
    ),
    TestedBug(
        PlantedBug(
            "redrive ignores the intents of the leader before",
            symbol="RedriveRun._finish_batches",
            right="await self._world.has_batch(batch, self._redrive.started.producer_id)",
            wrong="await self._end(batch, is_done=False, new_epoch=True)",
        ),
        tests=REDRIVE,
    ),
    TestedBug(
        PlantedBug(
            "a signal to drmq produce loses what waits for its batch",
            symbol="produce:produce",
            right="""
                sender.flush(progress)
                click.echo(f"Sent {plural(sender.acknowledged, 'record')} to `{topic}`.", err=True)
            """,
            wrong="""click.echo(f"Sent {plural(sender.acknowledged, 'record')} to `{topic}`.", err=True)""",
        ),
        tests=f"{PRODUCE}::test_signal_does_not_lose_what_was_read",
    ),
    TestedBug(
        PlantedBug(
            "SIGTERM kills a consumer that is in a group",
            symbol="Signals.__enter__",
            right="(signal.SIGTERM, signal.SIGHUP, signal.SIGINT)",
            wrong="(signal.SIGINT,)",
        ),
        tests=f"{CONSUME}::test_signal_ends_a_member_and_not_only_its_process",
    ),
    TestedBug(
        PlantedBug(
            "a closed pipe is noticed with the next record only",
            symbol="OutputWatch.check",
            right="if self._poll.poll(0):",
            wrong="if False:",
        ),
        tests=f"{CONSUME}::test_closed_pipe_ends_a_member_that_waits",
    ),
    TestedBug(
        PlantedBug(
            "dry run: a topic is deleted",
            symbol="topic:delete",
            right="if dry_run:",
            wrong="if False:",
        ),
        tests=f"{CLI}::test_dry_runs_destroy_nothing",
    ),
    TestedBug(
        PlantedBug(
            "dry run: partitions are added",
            symbol="topic:add_partitions",
            right="validate_only=dry_run",
            wrong="validate_only=False",
        ),
        tests=f"{CLI}::test_dry_runs_destroy_nothing",
    ),
    TestedBug(
        PlantedBug(
            "dry run: a vote is removed",
            symbol="_remove_vote",
            right="if not directory_ids or dry_run:",
            wrong="if not directory_ids:",
        ),
        tests=f"{CLI}::test_dry_runs_destroy_nothing",
    ),
    TestedBug(
        PlantedBug(
            "names of topics are not completed",
            symbol="topic_names",
            right="return _matching(context, incomplete, names)",
            wrong="return []",
        ),
        tests=f"{CLI}::test_shell_completes_names",
    ),
    TestedBug(
        PlantedBug(
            "drmq up names one node only",
            symbol="_next_steps",
            right="""steps.append(f"  export DRMQ_BOOTSTRAP={','.join(str(node.kafka) for node in nodes)}")""",
            wrong="""steps.append(f"  export DRMQ_BOOTSTRAP={nodes[0].kafka}")""",
        ),
        tests="tests/unit/server/cli/test_local.py",
    ),
    TestedBug(
        PlantedBug(
            "other nodes show a new topic before its leaders",
            symbol="NewPartitions.on_changed",
            right="if leaderless:",
            wrong="if False:",
        ),
        tests=f"{APIS}::test_a_new_topic_is_shown_with_its_leaders_by_every_node",
    ),
]


def main(words: list[str]) -> int:
    """Try those whose names contain one of `words`, or all; the exit code tells if any was missed."""
    return try_tests(chosen(BUGS, words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
