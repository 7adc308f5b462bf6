"""Every operation of the OpenAPI document, with generated requests against a live cluster of three.

schemathesis makes the requests from the document: values at the limits of each type, values beyond them, missing and
unknown fields, other methods and media types (coverage); random valid and invalid requests (fuzzing); and sequences in
which a request uses what an earlier one returned (stateful). The seed is fixed, so each run sends the same requests.

The cluster has no directory of a local cluster, so the fault lab is off: its operations are a part of the run and are
refused. Otherwise they would kill the nodes that all other operations need.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import schemathesis
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import Interaction, ScenarioRecorder
from schemathesis.schemas import BaseSchema

from support.http_cluster import HttpCluster
from support.polling import PATIENCE_S, eventually

SEED = 17
EXAMPLES = 15
"""Random requests of each operation. About half of them are not valid."""
WAIT_MS_MAX = 100
PARTITIONS_MAX = 4
PATHS = {
    "topic": ("fuzz-a", "fuzz-b", "dlq.fuzz-crew", "__consumer_offsets"),
    "group": ("fuzz-crew", "fuzz-readers", "fuzz/slash"),
    "partition": (0, 1),
    "node_id": (1, 2, 3),
}
DELETED = {"topic": ("fuzz-gone",), "group": ("fuzz-gone",)}
"""For DELETE, so that the others are still there for the operations after it."""
POSITIONS = ("earliest", "latest", "0", "7", "-3", "@0", "@1794970318238")
QUERY = {
    "topic": PATHS["topic"],
    "partition": (0, 1),
    "from": POSITIONS,
    "key": ("3",),
    "text": ("x",),
    "pattern": ("x", "^[a-z]+$"),
    "cursor": ("0.1", "eyJvcmRlciI6Im9sZGVzdCIsImF0Ijp7IjAiOjF9fQ=="),
    "group": ("fuzz-crew",),
    "level": ("info", "warning"),
}
SETTINGS = {"retention.ms": "3600000", "share.delivery.count.limit": "3", "segment.bytes": "1048576", "nothing": "1"}

CONFIG = {
    "seed": SEED,
    "request-timeout": PATIENCE_S,
    "continue-on-failure": True,
    "generation": {"max-examples": EXAMPLES, "deterministic": True, "no-shrink": True, "database": "none"},
    # What the cluster answers must not change which requests are made next. In sequences, it has to.
    "phases": {
        "coverage": {"extra-data-sources": {"responses": False}},
        "fuzzing": {"error-feedback": {"enabled": False}, "extra-data-sources": {"responses": False}},
    },
    "checks": {
        # A request can be valid by its types and still not be one that can be carried out: a name that is not allowed,
        # a pattern that is no regular expression, fewer partitions than there are.
        "positive_data_acceptance": {"enabled": False},
        # Judged here, for the sake of requests that can be repeated.
        "not_a_server_error": {"enabled": False},
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpCluster]:
    with HttpCluster(tmp_path_factory.mktemp("http-schema")) as running:
        for node in running.ids:
            running.http_port(node)
        yield running


def prepare(cluster: HttpCluster) -> list[str]:
    """Topics, groups and dead letters that requests find. The ack ids of messages that are leased."""
    for name in ("fuzz-a", "fuzz-b", "fuzz-gone"):
        cluster.ok("/topics", {"name": name, "partitions": 2})
        cluster.ok(f"/topics/{name}/records", {"records": [{"key": str(each), "value": "x"} for each in range(20)]})
    for group in ("fuzz-readers", "fuzz%2Fslash", "fuzz-gone"):
        cluster.ok(f"/groups/{group}/reset", {"to": "earliest", "topics": ["fuzz-a"]})
    crew = "/groups/fuzz-crew"
    cluster.ok(f"{crew}/settings", {"set": {"share.auto.offset.reset": "earliest"}}, "PATCH")
    ack_ids: list[str] = []
    while len(ack_ids) < 12:
        found = cluster.ok(f"{crew}/poll", {"topics": ["fuzz-a"], "max": 12 - len(ack_ids), "wait_ms": 1_000})
        ack_ids += [each["ack_id"] for each in found["messages"]]
    cluster.ok(f"{crew}/reject", {"ack_ids": ack_ids[:4]})
    eventually(lambda: cluster.ask("/topics/dlq.fuzz-crew")[0] == 200, what="dead letters")
    return ack_ids[4:]


def pick(seed: object, choices: Sequence[Any]) -> Any:
    """One of these, or None in one of three cases: always the same for a seed."""
    number = zlib.crc32(repr(seed).encode())
    return choices[number // 3 % len(choices)] if number % 3 else None


def load(cluster: HttpCluster, ack_ids: list[str]) -> BaseSchema:
    """The document of a gateway. Most of the valid requests are about topics, groups and messages that exist."""
    config = schemathesis.Config.from_dict(CONFIG)
    address = f"http://127.0.0.1:{cluster.http_port(1)}"
    schema = schemathesis.openapi.from_url(f"{address}/api/v1/openapi.json", config=config)
    schema.config.update(base_url=address)

    @schema.hook
    def map_case(context: schemathesis.HookContext, case: schemathesis.Case[Any]) -> schemathesis.Case[Any]:
        if case.meta is not None and case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE:
            replace(case.path_parameters, DELETED if case.method == "DELETE" else PATHS)
            replace(case.query, QUERY)
            if isinstance(case.body, dict):
                case.body = fitting(case.body, ack_ids)
        return case

    return schema


def replace(values: dict[str, Any], known: Mapping[str, Sequence[Any]]) -> None:
    for name in values:
        found = pick((values, name), known.get(name, [None]))
        if found is not None and not (isinstance(values[name], int) and isinstance(found, str)):
            values[name] = found


def fitting(body: dict[str, Any], ack_ids: list[str]) -> dict[str, Any]:
    """A body that asks for what exists, and for no more than a cluster of a test can bear."""
    body = dict(body)
    if "wait_ms" in body:
        body["wait_ms"] = min(body["wait_ms"], WAIT_MS_MAX)
    if body.get("partitions") is not None:
        body["partitions"] = min(body["partitions"], PARTITIONS_MAX)
    if "to" in body:  # a position or a node
        body["to"] = pick(body, POSITIONS if isinstance(body["to"], str) else PATHS["node_id"]) or body["to"]
    for name, known in (("topics", PATHS["topic"]), ("ack_ids", ack_ids)):
        if body.get(name) and (found := pick(body, known)):
            body[name] = [found]
    if body.get("set") and (setting := pick(body, list(SETTINGS))):
        body["set"] = {setting: SETTINGS[setting]}
    return body


def problems_of(label: str, found: Interaction) -> Iterator[str]:
    """What is wrong with an answer beyond what schemathesis checks."""
    asked, answer = found.request, found.response
    what = f"{label}: {asked.method} {asked.uri} {(asked.body or b'')[:300]!r}"
    if answer is None:
        yield f"{what} has no answer"
    elif answer.status_code >= 400 and asked.method != "HEAD":
        kind = answer.headers["content-type"]
        if kind != ["application/problem+json"]:
            yield f"{what}: {answer.status_code} is no problem but {kind}"
            return
        problem = json.loads(answer.content)
        if (
            problem["status"] != answer.status_code
            or not problem["detail"]
            or (answer.status_code >= 500 and not (problem.get("retriable") and can_be_repeated(found)))
        ):
            yield f"{what}: {problem}"


def can_be_repeated(found: Interaction) -> bool:
    """Whether a request gets another answer later: on a busy machine, the cluster may not do something in time."""
    asked = found.request
    headers = {name: values[0] for name, values in asked.headers.items() if name.lower() != "content-length"}
    request = urllib.request.Request(asked.uri, asked.body, headers, method=asked.method)

    def status() -> int:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    return eventually(status, lambda status: status < 500) < 500


def failed_checks(recorder: ScenarioRecorder) -> Iterator[str]:
    for case_id, checks in recorder.checks.items():
        for each in checks:
            if each.failure_info is not None:
                found = recorder.interactions.get(case_id)
                answer = found.response.content[:300] if found is not None and found.response is not None else b""
                failure = each.failure_info
                yield f"{recorder.label}: {each.name}: {failure.failure.message}\n{failure.code_sample}\n{answer!r}"


@pytest.mark.timeout(1_200)
def test_every_operation_answers_whatever_it_is_asked(cluster: HttpCluster) -> None:
    """No status of 500 and above, no request without an answer, and every answer as the document says."""
    schema = load(cluster, prepare(cluster))
    gateways = [cluster.gateway_of(node).pid for node in cluster.ids]
    wrong: list[str] = []
    asked: Counter[str] = Counter()
    answers: Counter[int] = Counter()
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            wrong += failed_checks(event.recorder)
            for case_id, found in event.recorder.interactions.items():
                label = event.recorder.cases[case_id].value.operation.label
                asked[label] += 1
                if found.response is not None:
                    answers[found.response.status_code] += 1
                wrong += problems_of(label, found)
        elif isinstance(event, events.NonFatalError):
            wrong.append(f"{event.label}: {event.info.format()}")
        elif isinstance(event, events.FatalError):
            raise event.exception
    assert not wrong, f"{len(wrong)} answers are wrong:\n" + "\n\n".join(wrong[:20])
    operations = {f"{method.upper()} {path}" for path, found in schema.raw_schema["paths"].items() for method in found}
    assert set(asked) == operations
    assert min(asked.values()) >= 3, asked
    assert {200, 201, 400, 404, 405, 409, 415} <= set(answers), "not only refusals, and not only successes"
    assert gateways == [cluster.gateway_of(node).pid for node in cluster.ids], "a gateway was started again"
    for node in cluster.ids:
        assert "Traceback" not in cluster[node].log_text()
    check_works(cluster)


def check_works(cluster: HttpCluster) -> None:
    """A topic is created, and a record is sent, read and leased, each through another gateway."""
    cluster.ok("/topics", {"name": "after", "partitions": 3})
    cluster.ok("/groups/after/settings", {"set": {"share.auto.offset.reset": "earliest"}}, "PATCH", node=2)
    eventually(lambda: cluster.ask("/topics/after", node=2)[0] == 200, what="the topic is known to node 2")
    cluster.ok("/topics/after/records", {"records": [{"value": "works"}]}, node=2)
    page = eventually(lambda: cluster.ok("/topics/after/records", node=3)["items"])
    assert [each["value"] for each in page] == ["works"]
    wanted = {"topics": ["after"], "wait_ms": 1_000}
    [message] = eventually(lambda: cluster.ok("/groups/after/poll", wanted)["messages"])
    assert cluster.ok("/groups/after/ack", {"ack_ids": [message["ack_id"]]}, node=3)["ok"]
