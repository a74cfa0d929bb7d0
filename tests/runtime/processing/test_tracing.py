"""Traces of records through sub-topologies: spans, contexts in headers, commits, and nothing when they are off."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

import millpond as mp
from millpond.errors import ConfigError
from millpond.json_logs import log_as_json
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.tracing import TaskTracer, sampled_parent
from millpond.runtime.worker import otel_spans
from millpond.runtime.worker.otel_spans import OpenTelemetryTracing, open_tracing
from millpond.topology import TaskId
from tests.conftest import CreateTopic
from tests.runtime.memory_kafka import Kafka, Record
from tests.runtime.running import Running
from tests.runtime.worker_parts import Parts
from tests.support import kafka as real
from tests.support.broker import Broker

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01".encode()
UNSAMPLED = f"00-{TRACE}-{SPAN}-00".encode()
CONFIG = Config.of({"application.id": "app", "bootstrap.servers": "memory:1", "tracing": "opentelemetry"})

Start = Callable[..., Parts]


def topology() -> Any:
    """Two sub-topologies: orders by customer, repartitioned by product and counted."""
    builder = mp.StreamsBuilder()
    orders = builder.stream("in", key=mp.String, value=mp.String)
    counts = orders.group_by(lambda _, value: value, key=mp.String).count(store="counts")
    counts.to_stream().to("out", key=mp.String, value=mp.Long)
    return builder.build()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """The spans that have ended."""
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> OpenTelemetryTracing:
    """The provider of an application."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OpenTelemetryTracing(CONFIG, provider)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start workers that run all tasks."""
    workers: list[Parts] = []

    def started(kafka: Kafka, tracing: Any = None, application: Any = None, **settings: Any) -> Parts:
        made = Parts(
            kafka,
            application or topology(),
            tmp_path / str(len(workers)),
            {"in": 1, "out": 1},
            tracing=tracing,
            **settings,
        )
        made.own(*made.plan.tasks)
        workers.append(made)
        return made

    yield started
    for each in workers:
        each.close()


def kafka_with(*headers: list[tuple[str, bytes | None]] | None) -> Kafka:
    """A topic with one record for each list of headers."""
    kafka = Kafka()
    log = kafka.logs.setdefault(Partition("in", 0), [])
    for number, each in enumerate(headers):
        log.append(Record(b"customer", b"p%d" % (number % 2), 1_000 + number, stable=True, headers=each))
    return kafka


def run(worker: Parts) -> None:
    """Process and commit everything, in both sub-topologies."""
    for _ in range(3):
        worker.process()
        worker.commit()


def logs_of(kafka: Kafka) -> dict[Any, list[tuple[Any, ...]]]:
    """The committed records of all topics, with their headers."""
    return {
        place: [(each.key, each.value, each.timestamp, each.headers) for each in log if each.stable]
        for place, log in kafka.logs.items()
    }


def context(header: bytes) -> tuple[str, str]:
    """The ids of trace and span."""
    _, trace, span, flags = header.decode().split("-")
    assert flags == "01"
    return trace, span


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (SAMPLED, True),
        (f"00-{TRACE}-{SPAN}-03".encode(), True),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later".encode(), True),
        (UNSAMPLED, False),
        (f"ff-{TRACE}-{SPAN}-01".encode(), False),
        (f"00-{'0' * 32}-{SPAN}-01".encode(), False),
        (f"00-{TRACE}-{'0' * 16}-01".encode(), False),
        (f"00-{TRACE.upper()}-{SPAN}-01".encode(), False),
        (b"\xff\x00", False),
        (b"", False),
        (None, False),
    ],
)
def test_the_producer_decides_what_is_traced(header: bytes | None, sampled: bool) -> None:
    """By the flag of a valid header, as W3C Trace Context defines it."""
    parent = sampled_parent([("other", b"1"), ("traceparent", header), ("tracestate", b"vendor=1")])
    if sampled:
        assert parent is not None
        assert (parent.trace_id, parent.span_id, parent.state) == (TRACE, SPAN, b"vendor=1")
        assert parent.flags & 1
    else:
        assert parent is None


@pytest.mark.parametrize("cache", [0, 1_000_000], ids=["each update", "record cache"])
def test_a_record_is_followed_through_sub_topologies(
    start: Start, tracing: Any, exporter: InMemorySpanExporter, cache: int
) -> None:
    """Each sub-topology's span is the child of the one before, also if a record cache holds the result back."""
    kafka = kafka_with([("traceparent", SAMPLED), ("id", b"7")], None)
    run(start(kafka, tracing, statestore_cache_max_bytes=cache))
    first, second = exporter.get_finished_spans()
    assert first.parent is not None
    assert second.parent is not None
    assert (f"{first.context.trace_id:032x}", f"{first.parent.span_id:016x}") == (TRACE, SPAN)
    assert (second.context.trace_id, second.parent.span_id) == (first.context.trace_id, first.context.span_id)
    assert first.attributes is not None
    assert second.attributes is not None
    assert first.name == "process in"
    assert [each["millpond.subtopology"] for each in (first.attributes, second.attributes)] == [0, 1]
    assert (first.attributes["messaging.destination.name"], first.attributes["messaging.kafka.offset"]) == ("in", 0)
    assert {first.status.status_code, second.status.status_code} == {StatusCode.UNSET}
    (traced,) = [each for each in kafka.logs[Partition("out", 0)] if each.key == b"p0"]
    assert traced.headers == [("traceparent", f"00-{TRACE}-{second.context.span_id:016x}-01".encode()), ("id", b"7")]
    (plain,) = [each for each in kafka.logs[Partition("out", 0)] if each.key == b"p1"]
    assert plain.headers is None


def test_lines_in_json_have_the_ids_of_the_record_in_work(
    start: Start, tracing: Any, exporter: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of user code and of millpond, and of no other record; also after a record that fails."""

    def logged(value: str) -> str:
        user.warning("user code: %s", value)
        if value == "p1":
            raise ValueError("bad")
        return value

    user = logging.getLogger("shop")
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String).map_values(logged)
    stream.to("out", key=mp.String, value=mp.String)
    kafka = kafka_with([("traceparent", SAMPLED)], [("traceparent", SAMPLED)], None)
    root = logging.getLogger()
    before = root.handlers[:], root.level, threading.excepthook
    try:
        log_as_json()
        run(start(kafka, tracing, builder.build(), processing_exception_handler="continue"))
        user.warning("that is all")
    finally:
        root.handlers[:], level, threading.excepthook = before
        root.setLevel(level)
        logging.captureWarnings(capture=False)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    ids = [(line["message"], line.get("trace_id"), line.get("span_id")) for line in lines]
    first, second = ((TRACE, f"{each.context.span_id:016x}") for each in exporter.get_finished_spans())
    before_it, (_, *failed), after_it, end = ids[-5:-3], ids[-3], ids[-2], ids[-1]
    assert before_it == [("user code: p0", *first), ("user code: p1", *second)]
    assert "ValueError" in ids[-3][0]
    assert tuple(failed) == second != first
    assert (after_it, end) == (("user code: p0", None, None), ("that is all", None, None))


def test_spans_of_user_code_are_children_of_that_of_the_record(start: Start, exporter: InMemorySpanExporter) -> None:
    """A call of a service in a mapper shows in the trace, below its record."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def called(value: str) -> str:
        with provider.get_tracer("shop").start_as_current_span("call"):
            return value

    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String).map_values(called)
    stream.to("out", key=mp.String, value=mp.String)
    run(start(kafka_with([("traceparent", SAMPLED)]), OpenTelemetryTracing(CONFIG, provider), builder.build()))
    inner, outer = exporter.get_finished_spans()
    assert (inner.name, outer.name) == ("call", "process in")
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id


def test_records_with_one_context_have_spans_of_their_own(
    start: Start, tracing: Any, exporter: InMemorySpanExporter
) -> None:
    """A producer that sends two records in one span gets two children, each with its own output."""
    kafka = kafka_with([("traceparent", SAMPLED)], [("traceparent", SAMPLED)])
    run(start(kafka, tracing, statestore_cache_max_bytes=0))
    spans = exporter.get_finished_spans()
    assert len({each.context.span_id for each in spans}) == 4
    (repartition,) = [log for place, log in kafka.logs.items() if place.topic.endswith("-repartition")]
    firsts = {f"{each.context.span_id:016x}" for each in spans if each.attributes["millpond.subtopology"] == 0}  # type: ignore[index]
    assert {context(each.headers[0][1])[1] for each in repartition} == firsts


def test_what_suppress_holds_back_continues_the_trace_of_its_record(
    start: Start, tracing: Any, exporter: InMemorySpanExporter
) -> None:
    """The result is sent commits later, because of another record, and its parent is the span that made it."""
    builder = mp.StreamsBuilder()
    windows = mp.TimeWindows.of_size_with_no_grace(timedelta(seconds=1))
    stream = builder.stream("in", key=mp.String, value=mp.String)
    counts = stream.group_by_key().windowed_by(windows).count(store="counts")
    finals = counts.suppress(mp.until_window_closes()).to_stream()
    finals.select_key(lambda window, _: window.key).to("out", key=mp.String, value=mp.Long)
    kafka = kafka_with([("traceparent", SAMPLED)])
    worker = start(kafka, tracing, application=builder.build())
    run(worker)
    (span,) = exporter.get_finished_spans()
    assert not kafka.logs.get(Partition("out", 0))
    kafka.logs[Partition("in", 0)].append(Record(b"customer", b"p0", 5_000, stable=True))
    run(worker)
    (record,) = kafka.logs[Partition("out", 0)]
    assert record.headers == [("traceparent", f"00-{TRACE}-{span.context.span_id:016x}-01".encode())]


def test_spans_end_with_the_commit(start: Start, tracing: Any, exporter: InMemorySpanExporter) -> None:
    """Not before: a result that is not committed is not there for readers."""
    kafka = kafka_with([("traceparent", SAMPLED)])
    worker = start(kafka, tracing)
    worker.process()
    assert exporter.get_finished_spans() == ()
    worker.producer.delivers = False
    worker.commit(through=False)
    assert exporter.get_finished_spans() == ()
    worker.producer.delivers = True
    worker.finish()
    assert len(exporter.get_finished_spans()) == 1


def test_an_aborted_commit_ends_its_spans_with_an_error(
    start: Start, tracing: Any, exporter: InMemorySpanExporter
) -> None:
    """No span is lost; the record has another one when it is processed again."""
    kafka = kafka_with([("traceparent", SAMPLED)], [("traceparent", SAMPLED)])
    worker = start(kafka, tracing)
    worker.process()
    worker.producer.delivers = False
    worker.commit(through=False)
    for task in worker.executor.running:
        task.close()
    spans = exporter.get_finished_spans()
    assert [each.status.status_code for each in spans] == [StatusCode.ERROR] * 2
    assert "went back to its last commit" in (spans[0].status.description or "")
    worker.producer.delivers = True
    worker.finish()
    assert len(exporter.get_finished_spans()) == 2, "no span ends twice"


def test_state_is_the_same_with_and_without_tracing(start: Start, tracing: Any) -> None:
    """Changelogs and the state file have the same bytes; repartitioned records and output differ in one header."""
    headers: tuple[Any, ...] = (
        [("traceparent", SAMPLED), ("id", b"7")],
        None,
        [("traceparent", UNSAMPLED)],
        [("a", b"")],
    )
    off, on = kafka_with(*headers), kafka_with(*headers)
    without, with_tracing = start(off), start(on, tracing)
    run(without)
    run(with_tracing)
    assert without.rows("counts") == with_tracing.rows("counts") != {}
    before, after = logs_of(off), logs_of(on)
    assert before.keys() == after.keys()
    differing = []
    for place, records in before.items():
        for old, new in zip(records, after[place], strict=True):
            assert old[:3] == new[:3]
            if old[3] != new[3]:
                differing.append(place.topic)
                assert [name for name, _ in old[3]] == [name for name, _ in new[3]]
                assert [each for each in old[3] if each[0] != "traceparent"] == [
                    each for each in new[3] if each[0] != "traceparent"
                ]
    assert differing
    assert all(topic == "out" or topic.endswith("-repartition") for topic in differing)


def test_without_tracing_headers_pass_unchanged(start: Start) -> None:
    """Off is the default, and then nothing looks at headers."""
    kafka = kafka_with([("traceparent", SAMPLED)])
    worker = start(kafka)
    assert all(task._tracer is None for task in worker.executor.running)
    run(worker)
    (record,) = kafka.logs[Partition("out", 0)]
    assert record.headers == [("traceparent", SAMPLED)]
    assert open_tracing(Config.of({"application.id": "a", "bootstrap.servers": "b:1"})) is None


def test_a_provider_that_fails_stops_no_record(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Its exception is logged once, and the record is processed without a span."""

    class Failing:
        def get_tracer(self, _name: str) -> Any:
            return self

        def start_span(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no tracer")

    kafka = kafka_with([("traceparent", SAMPLED)], [("traceparent", SAMPLED)])
    run(start(kafka, OpenTelemetryTracing(CONFIG, Failing())))
    assert len(kafka.logs[Partition("out", 0)]) == 2
    assert caplog.text.count("cannot start a span") == 1


def test_rows_with_an_identity_keep_the_context_of_their_record(tracing: Any) -> None:
    """In careful mode a row is found again by its identity; it still belongs to the trace."""

    class Sourced(list[Any]):
        """As the outbox in careful mode."""

    row = ("out", b"v", b"k", -1, None, None, 1_000, [("traceparent", SAMPLED)])
    parent = sampled_parent([("traceparent", SAMPLED)])
    assert parent is not None
    message = Message(topic="in", partition=0, offset=0, key=b"k", value=b"v")
    for outbox, kept in ((Sourced([row]), True), ([row], False)):
        tracer = TaskTracer(tracing, TaskId(0, 0), outbox)
        tracer.start(parent, message)
        tracer.pass_on(0)
        assert (outbox[0] is row) is kept
        assert len(tracer.take()) == 1


def test_the_provider_of_an_application_is_used(
    start: Start, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that embeds a worker exports all of its spans in one way, and its sampler has the last word."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    kafka = kafka_with([("traceparent", SAMPLED)])
    run(start(kafka, open_tracing(CONFIG)))
    assert len(exporter.get_finished_spans()) == 2
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: TracerProvider(sampler=ALWAYS_OFF))
    other = kafka_with([("traceparent", SAMPLED)])
    run(start(other, open_tracing(CONFIG)))
    assert other.logs[Partition("out", 0)][0].headers == [("traceparent", SAMPLED)]


def test_a_collector_that_does_not_answer_does_not_hold_up_the_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker has to end within the grace period of its pod."""
    answered = threading.Event()

    class Waiting:
        shutdown = answered.wait

        def get_tracer(self, _name: str) -> None:
            return None

    monkeypatch.setattr("millpond.runtime.worker.otel_spans._EXPORT_TIMEOUT_S", 0.01)
    OpenTelemetryTracing(CONFIG, Waiting(), owned=True).close()
    assert "the collector does not answer; the last spans are lost" in caplog.text
    answered.set()
    OpenTelemetryTracing(CONFIG, Waiting()).close()


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the worker connects to anything."""
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"install millpond\[otel\], or set tracing = \"none\""):
        open_tracing(CONFIG)


class Receiver:
    """A receiver of OTLP over HTTP, which keeps the spans that it gets."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Write nothing to standard error."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{made.server.server_port}")
    yield made
    made.close()


def test_a_worker_exports_its_spans(
    broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path, receiver: Receiver
) -> None:
    """By OTLP over HTTP, all of them before it ends; the consumer of the output continues the trace."""
    source, target = create_topic("in"), create_topic("out")
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(target, key=mp.String, value=mp.String)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers}, logger=real.log)
    for value in ("traced", "plain"):
        producer.produce(source, value, "k", headers=[("traceparent", SAMPLED)] if value == "traced" else None)
    assert producer.flush(30) == 0
    settings = {"tracing": "opentelemetry", "processing.guarantee": "exactly_once"}
    with Running(builder.build(), broker.bootstrap_servers, app_id, tmp_path, settings):
        traced, plain = real.read_until(broker.bootstrap_servers, target, 2)
    (span,) = receiver.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.name) == (TRACE, SPAN, f"process {source}")
    resource = {
        each.key: each.value.string_value for each in receiver.requests[0].resource_spans[0].resource.attributes
    }
    assert (resource["service.name"], resource["service.instance.id"]) == (app_id, "w0")
    assert traced.headers == (("traceparent", f"00-{TRACE}-{span.span_id.hex()}-01".encode()),)
    assert not plain.headers


def test_the_number_of_open_spans_is_limited(
    tracing: OpenTelemetryTracing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spans are open until the commit, at least once for half a minute: all of them would not fit into memory."""
    monkeypatch.setattr(otel_spans, "_MAX_OPEN", 2)
    parent = sampled_parent([("traceparent", SAMPLED)])
    assert parent is not None
    message: Any = SimpleNamespace(topic=lambda: "in", partition=lambda: 0, offset=lambda: 7)
    spans = [tracing.start(parent, TaskId(0, 0), message) for _ in range(4)]
    assert [each is None for each in spans] == [False, False, True, True]
    assert caplog.text.count("more than 2 sampled records between two commits") == 1
    assert spans[0] is not None
    spans[0].end()
    spans[0].end()
    assert tracing.start(parent, TaskId(0, 0), message) is not None
    assert tracing.start(parent, TaskId(0, 0), message) is None
