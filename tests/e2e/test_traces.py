"""A record on its way, as a collector of OpenTelemetry sees it: each span is below the one that caused it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from drmq.v1 import log_pb2
from drmq.v1.records_pb2 import NewRecord
from support.collector import Collector
from support.grpc_client import GATEWAY, GrpcClient, grpc_address
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="drmq[otel] is not installed")

_HTTP = re.compile(r"serves HTTP at http://127\.0\.0\.1:(\d+)")
TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

_PROGRAM = """
import sys
import drmq
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")
bootstrap = sys.argv[1]

@drmq.worker("paid", group="shipping", start="earliest")
def ship(message):
    with tracer.start_as_current_span("label"):
        if message.value == b"last":
            ship.stop()

with tracer.start_as_current_span("checkout") as span:
    print(f"{span.get_span_context().trace_id:032x}")
    with drmq.Producer(bootstrap) as producer:
        producer.send("paid", b"one", headers={"customer": "7"})
with drmq.Producer(bootstrap) as producer:
    producer.send("paid", b"last")
with drmq.Consumer(bootstrap, mode="single") as consumer:
    consumer.subscribe("paid", "earliest")
    message = consumer.poll(1, timeout=60.0)[0]
    with drmq.continue_trace(message):
        with tracer.start_as_current_span("look"):
            pass
ship.run(bootstrap)
provider.shutdown()
"""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[BrokerProcess]:
    environment = {**GATEWAY, "DRMQ_TRACING": "true", "DRMQ_LOG_LEVEL": "debug"}
    directory = tmp_path_factory.mktemp("traces")
    with BrokerProcess(directory / "data", env=environment | collector.environment) as running:
        eventually(lambda: bool(_HTTP.search(running.log_text())))
        yield running


def test_from_an_http_request_to_the_commit(broker: BrokerProcess, collector: Collector) -> None:
    with RawClient(broker.bootstrap) as client:
        client.create_topic("orders", 1)
    port = int(_HTTP.findall(broker.log_text())[-1])
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/topics/orders/records",
        json.dumps({"records": [{"value": "one"}, {"value": "two"}]}).encode(),
        {"Content-Type": "application/json", "traceparent": f"00-{TRACE}-{ABOVE}-01", "X-Request-Id": "order-17"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        results = json.loads(answer.read())["results"]
    route = "POST /api/v1/topics/{topic}/records"
    eventually(lambda: {route, "send orders", "commit orders"} <= collector.of_trace(TRACE).keys())
    with collector._lock:
        spans = [span for span in collector.spans if span.trace_id == TRACE]
    [http] = [span for span in spans if span.name == route]
    assert (http.parent_id, http.service) == (ABOVE, "drmq-gateway")
    assert http.attributes["http.response.status_code"] == 200
    assert http.attributes["drmq.request_id"] == "order-17"
    sent = [span for span in spans if span.name == "send orders"]
    assert [span.parent_id for span in sent] == [http.span_id] * 2
    assert {span.attributes["messaging.kafka.offset"] for span in sent} == {each["offset"] for each in results}
    eventually(lambda: sum(span.name == "commit orders" for span in collector.spans) == 2)
    committed = [span for span in collector.spans if span.name == "commit orders"]
    assert {span.parent_id for span in committed} == {span.span_id for span in sent}
    assert all(span.service == "drmq" and span.attributes["drmq.node_id"] == 1 for span in committed)
    assert all(span.duration_ns > 0 and not span.failed for span in committed)
    assert f"trace_id={TRACE}" in broker.log_text(), "lines about the request have its trace"


def test_from_a_grpc_call_to_the_commit(broker: BrokerProcess, collector: Collector) -> None:
    trace = "7" * 32
    with RawClient(broker.bootstrap) as client:
        client.create_topic("calls", 1)
    eventually(lambda: "serves gRPC" in broker.log_text())
    with GrpcClient(grpc_address(broker)) as caller:
        request = log_pb2.AppendRequest(topic="calls", records=[NewRecord(value=b"one")])
        metadata = (("traceparent", f"00-{trace}-{ABOVE}-01"), ("x-request-id", "order-18"))
        caller.log.Append(request, metadata=metadata, timeout=PATIENCE_S, wait_for_ready=True)
    eventually(lambda: {"LogService/Append", "send calls", "commit calls"} <= collector.of_trace(trace).keys())
    spans = collector.of_trace(trace)
    assert spans["LogService/Append"].parent_id == ABOVE
    assert spans["LogService/Append"].attributes["drmq.request_id"] == "order-18"
    assert spans["send calls"].parent_id == spans["LogService/Append"].span_id
    assert spans["commit calls"].parent_id == spans["send calls"].span_id
    assert "request_id=order-18" in broker.log_text()


def test_what_is_not_sampled_makes_no_span(broker: BrokerProcess, collector: Collector) -> None:
    unsampled, sampled = "5" * 32, "6" * 32
    with RawClient(broker.bootstrap) as client:
        client.create_topic("quiet", 1)
    port = int(_HTTP.findall(broker.log_text())[-1])
    for trace, flags in ((unsampled, "00"), (sampled, "01")):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/topics/quiet/records",
            json.dumps({"records": [{"value": "one"}]}).encode(),
            {"Content-Type": "application/json", "traceparent": f"00-{trace}-{ABOVE}-{flags}"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S):
            pass
    eventually(lambda: "commit quiet" in collector.of_trace(sampled))
    assert collector.of_trace(unsampled) == {}


def test_from_a_producer_to_its_worker(broker: BrokerProcess, collector: Collector, tmp_path: Path) -> None:
    with RawClient(broker.bootstrap) as client:
        client.create_topic("paid", 1)
    program = tmp_path / "shop.py"
    program.write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), broker.bootstrap],
        env={"PATH": "/usr/bin:/bin", "OTEL_SERVICE_NAME": "shop", **collector.environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=2 * PATIENCE_S,
        check=True,
    )
    trace = done.stdout.strip()
    wanted = {"checkout", "send paid", "commit paid", "process paid", "label", "look"}
    eventually(lambda: wanted <= collector.of_trace(trace).keys())
    with collector._lock:
        spans = [span for span in collector.spans if span.trace_id == trace]
    by_name = {span.name: span for span in spans}
    assert by_name["checkout"].parent_id == ""
    sent = by_name["send paid"]
    assert sent.parent_id == by_name["checkout"].span_id
    assert by_name["commit paid"].parent_id == sent.span_id
    worked = [span for span in spans if span.name == "process paid"]
    assert [span.parent_id for span in worked] == [sent.span_id] * 2, "the consumer's and the worker's"
    parents = {by_name["label"].parent_id, by_name["look"].parent_id}
    assert parents == {span.span_id for span in worked}
    assert sum(span.name == "send paid" for span in spans) == 1, "the second record was sent outside of a trace"
