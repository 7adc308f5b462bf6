"""AlterReplicaLogDirs (34): move replicas of a broker to another of its data directories."""
# ruff: noqa: RUF009  # `array` and `structure` return dataclass fields, as `field` does

from __future__ import annotations

from dataclasses import dataclass

from drmq.wire.api_key import ApiKey
from drmq.wire.fields import array, int16, int32, message, string


@dataclass(slots=True)
class AlterReplicaLogDirsRequestTopic:
    name: str = string()
    partitions: list[int] = array("int32")


@dataclass(slots=True)
class AlterReplicaLogDirsRequestDir:
    path: str = string()
    topics: list[AlterReplicaLogDirsRequestTopic] = array(AlterReplicaLogDirsRequestTopic)


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2)
@dataclass(slots=True)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDirsRequestDir] = array(AlterReplicaLogDirsRequestDir)

    @property
    def topics(self) -> list[AlterReplicaLogDirsRequestTopic]:
        """The topics of all directories: the response has them without their directories."""
        return [topic for directory in self.dirs for topic in directory.topics]


@dataclass(slots=True)
class AlterReplicaLogDirsResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class AlterReplicaLogDirsResponseTopic:
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirsResponsePartition] = array(AlterReplicaLogDirsResponsePartition)


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2)
@dataclass(slots=True)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirsResponseTopic] = array(AlterReplicaLogDirsResponseTopic)
