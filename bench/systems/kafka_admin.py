"""The few administrative requests that DRMQ and Apache Kafka need alike."""

import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.process import BenchError

_NO_CONTROLLER = (KafkaError.NOT_CONTROLLER, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TIMED_OUT)


def answers(port: int) -> bool:
    """Whether a broker answers a Metadata request within a second."""
    try:
        return bool(_admin(port).list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False


def create_topic(
    port: int,
    topic: str,
    partition_count: int,
    config: dict[str, str] | None = None,
    replica_count: int = 1,
    seconds_max: float = 60.0,
) -> None:
    """Create `topic`, and wait until it exists. Repeated while the controller is being elected, as applications do."""
    new = NewTopic(topic, num_partitions=partition_count, replication_factor=replica_count, config=config or {})
    admin = _admin(port)
    end = time.monotonic() + seconds_max
    is_repeated = False
    while True:
        try:
            admin.create_topics([new], operation_timeout=seconds_max, request_timeout=seconds_max)[topic].result(
                seconds_max + 30.0
            )
        except KafkaException as failed:
            code = failed.args[0].code()
            if is_repeated and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code not in _NO_CONTROLLER or time.monotonic() > end:
                raise BenchError(f"cannot create a topic: {failed}") from failed
            is_repeated = True
            time.sleep(1.0)
        else:
            return


def delete_topic(port: int, topic: str) -> None:
    """Delete `topic`, and wait until that is accepted."""
    admin = _admin(port)
    try:
        admin.delete_topics([topic], operation_timeout=20.0, request_timeout=20.0)[topic].result(30.0)
    except KafkaException as failed:
        raise BenchError(f"cannot delete a topic: {failed}") from failed


def _admin(port: int) -> AdminClient:
    # The caller must hold on to it: collected, it cancels the request it is waiting for.
    # librdkafka reports every refused connection of a broker that is still starting; silence it.
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
