"""Reports about text that has no UTF-8: half of a character, as some JSON has it, in what users and records say."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import msgspec
import pytest
from prometheus_client import generate_latest

import millpond as mp
from millpond.errors import BrokerError, ProcessingFailed
from millpond.json_logs import JsonFormatter
from millpond.protocol import Trouble, encode
from millpond.queries.failures import Failure, FailureReason
from millpond.queries.messages import RowsEnd, encode_frame
from millpond.runtime.blockers import Blockers
from millpond.runtime.http.user_metrics import user_families
from millpond.testing import TopologyTestDriver
from millpond.texts import encoded, said
from tests.conftest import CreateTopic
from tests.runtime.running import Running, failure_of
from tests.support import kafka
from tests.support.broker import Broker

HALF = "\ud83d"


class Wordless(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no words")


def _dropping(process: Any, **settings: Any) -> TopologyTestDriver:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(process).to("out", key=mp.String, value=mp.String)
    chosen = {
        "processing.exception.handler": "continue",
        "production.exception.handler": "continue",
        "errors.dead.letter.queue.topic.name": "dead",
        **settings,
    }
    return TopologyTestDriver(builder.build(), config=chosen)


def _raising(error: Exception) -> type[mp.Processor[str, str, str, str]]:
    class Raising(mp.Processor[str, str, str, str]):
        def process(self, record: mp.Record[str, str]) -> None:
            raise error

    return Raising


def _pipe(driver: TopologyTestDriver) -> None:
    driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v")


@pytest.mark.parametrize(
    ("error", "words"),
    [(ValueError(f"cannot read {HALF}"), rb"cannot read \ud83d"), (Wordless(), rb"str() raised ValueError")],
    ids=["half a character", "no text"],
)
def test_a_handler_may_continue_after_any_exception(error: Exception, words: bytes) -> None:
    """A record is dropped whose processor raises an exception with half a character in its text, or without any."""
    with _dropping(_raising(error)) as driver:
        _pipe(driver)
        (letter,) = driver.create_output_topic("dead", key=mp.String, value=mp.String).read_records_to_list()
        headers = dict(letter.headers)
        assert words in (headers["__streams.errors.message"] or b"")
        assert b"Traceback" in (headers["__streams.errors.stacktrace"] or b"")


def test_a_worker_that_fails_names_an_error_of_any_text() -> None:
    """The error that ends a worker can be encoded, as for its termination message."""
    with (
        _dropping(_raising(ValueError(HALF)), **{"processing.exception.handler": "fail"}) as driver,
        pytest.raises(ProcessingFailed, match=r"ValueError: \\ud83d") as failed,
    ):
        _pipe(driver)
    assert str(failed.value).encode()


def test_the_name_of_a_header_with_half_a_character_is_refused() -> None:
    """Kafka's client ends the whole process with a segmentation fault for such a name."""

    class Naming(mp.Processor[str, str, str, str]):
        def process(self, record: mp.Record[str, str]) -> None:
            self.context.forward(record.with_headers([(HALF, b"x")]))

    with _dropping(Naming) as driver:
        _pipe(driver)
        assert driver.create_output_topic("out", key=mp.String, value=mp.String).is_empty()
        (letter,) = driver.create_output_topic("dead", key=mp.String, value=mp.String).read_records_to_list()
        assert b"half a character" in (dict(letter.headers)["__streams.errors.message"] or b"")


def test_a_header_of_a_dead_letter_is_checked_too() -> None:
    """A handler of one's own that makes such a header ends the worker with an error, not with a fault."""

    def aside(context: mp.ErrorContext, _: Exception) -> mp.Response:
        return mp.Response(mp.Result.CONTINUE, [mp.DeadLetter("dead", b"k", b"v", context.timestamp, [(HALF, b"")])])

    with (
        _dropping(_raising(ValueError("no")), **{"processing.exception.handler": aside}) as driver,
        pytest.raises(ProcessingFailed, match=r"wrong dead letter: The name '\\ud83d'"),
    ):
        _pipe(driver)


def test_a_heartbeat_reports_trouble_of_any_text() -> None:
    """A heartbeat that cannot be encoded would end the session, and the tasks would move away."""
    blockers = Blockers()
    blockers.add("registry", BrokerError(f"it says {HALF}"), 0.0)
    trouble = blockers.trouble(0.0)
    assert trouble == Trouble("BrokerError", r"it says \ud83d")
    assert msgspec.json.decode(encode(Trouble("BrokerError", HALF)), type=Trouble).message == r"\ud83d"


def test_an_answer_to_a_query_may_have_any_text() -> None:
    """Frames between workers are MessagePack; bytes in them stay bytes."""
    frame = encode_frame(RowsEnd(failure=Failure(FailureReason.STORE_EXCEPTION, HALF)))
    end = msgspec.msgpack.decode(frame[4:], type=RowsEnd)
    assert end.failure is not None
    assert end.failure.message == r"\ud83d"
    assert msgspec.msgpack.decode(encoded([b"\xff", HALF], msgspec.msgpack.Encoder())) == [b"\xff", r"\ud83d"]


@pytest.mark.parametrize("error", [ValueError(HALF), Wordless()], ids=["half a character", "no text"])
def test_a_log_line_is_json_whatever_its_text(error: Exception) -> None:
    """Strict readers reject a line with half a character."""
    record = logging.LogRecord("a", logging.ERROR, "", 1, f"said {HALF}", (), (type(error), error, None))
    line = msgspec.json.decode(JsonFormatter().format(record))
    assert line["message"] == r"said \ud83d"
    assert line["error_message"] == said(error)


def test_a_tag_of_a_metric_may_have_any_text() -> None:
    """One such tag must not end the page of all metrics."""

    class Counting(mp.Processor[str, str, str, str]):
        def process(self, record: mp.Record[str, str]) -> None:
            self.context.metrics.counter("seen", "Words that were seen.", tags={"word": HALF}).inc()

    with _dropping(Counting) as driver:
        _pipe(driver)
        assert driver.create_output_topic("dead", key=mp.String, value=mp.String).is_empty()
        registry: Any = SimpleNamespace(collect=lambda: list(user_families({}, [driver._task])))
        assert rb'word="\\ud83d"' in generate_latest(registry)


def _produce_in_c(servers: str, topic: str, names: list[bytes]) -> None:
    """Write records with a header of each name, as clients in C and Go can: the client for Python takes only text."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, function).restype = ctypes.c_void_p
    settings, text = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", servers.encode(), text, 512)
    producer = ctypes.c_void_p(library.rd_kafka_new(0, settings, text, 512))
    for number, name in enumerate(names):
        headers = ctypes.c_void_p(library.rd_kafka_headers_new(1))
        library.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), b"v", ctypes.c_ssize_t(1))
        value = b"%d" % number
        # The kinds of arguments: 1 topic, 4 value, 10 headers, 0 the end.
        assert not library.rd_kafka_producev(
            producer, 1, topic.encode(), 4, value, ctypes.c_size_t(len(value)), 10, headers, 0
        )
    assert not library.rd_kafka_flush(producer, 20_000)
    library.rd_kafka_destroy(producer)


def test_a_record_whose_header_has_no_text_as_its_name_is_a_bad_record(
    broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path
) -> None:
    """The client cannot return its headers: the handler decides, and the records around it are processed."""
    source, target, dead = create_topic("in"), create_topic("out"), create_topic("dead")
    servers = broker.bootstrap_servers
    _produce_in_c(servers, source, [b"fine", b"caf\xe9", b"fine", b"caf\xe9"])
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(target, key=mp.String, value=mp.String)
    assert "the name of a header is not UTF-8" in str(failure_of(builder.build(), servers, app_id, tmp_path))
    settings = {
        "deserialization.exception.handler": "continue",
        "errors.dead.letter.queue.topic.name": dead,
    }
    with Running(builder.build(), servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: len(kafka.read(servers, dead)) == 2, "the bad records are put aside")
        running.wait(lambda: len(kafka.read(servers, target)) == 2, "the others are processed")
    assert [row.value for row in kafka.read(servers, target)] == [b"0", b"2"]
    assert [row.value for row in kafka.read(servers, dead)] == [b"1", b"3"]
