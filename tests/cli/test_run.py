"""`millpond run` with a real broker, in a child process."""

from __future__ import annotations

import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millpond.serdes import Long
from tests.cli.conftest import COUNT, Application, Millpond, Process
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

Start = Callable[..., Process]


@pytest.fixture
def words(create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The topics of the application."""
    topics = create_topic("words", partitions=2), create_topic("counts", partitions=2)
    monkeypatch.setenv("WORDS", topics[0])
    monkeypatch.setenv("COUNTS", topics[1])
    return topics


def produce(broker: Broker, topic: str, *words: str) -> None:
    kafka.produce(broker.bootstrap_servers, topic, [(None, word) for word in words])


def counted(broker: Broker, topic: str, expected: dict[str, int]) -> dict[str, int]:
    """Wait for the expected newest count of each word."""
    latest: dict[str, int] = {}

    def reached(rows: list[kafka.Row]) -> bool:
        latest.update({(row.key or b"").decode(): Long.deserialize(row.value or b"") for row in rows})
        return latest == expected

    kafka.read_until(broker.bootstrap_servers, topic, reached)
    return latest


def await_processed(worker: Process, records: int) -> None:
    """Wait until the worker has processed so many records, by its metrics."""
    kafka.eventually(lambda: worker.says("-> running"), "the worker runs")
    address = re.search(r"http://\S+/metrics", worker.said)
    assert address is not None

    def processed() -> bool:
        text = urllib.request.urlopen(address[0], timeout=60).read().decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return any(
            sample.name == "millpond_worker_processed_records_total" and sample.value >= records for sample in samples
        )

    kafka.eventually(processed, f"{records} records are processed")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_worker_resumes_where_a_signal_stopped_it(
    broker: Broker, start: Start, application: Application, words: tuple[str, str], app_id: str, number: int
) -> None:
    """It counts, commits at SIGTERM, ends with status 0, and the next run neither loses nor repeats records."""
    name = application(COUNT)
    arguments = (
        "run", f"{name}:count", "--bootstrap-servers", broker.bootstrap_servers, "--application-id", app_id,
        "--processing-guarantee", "exactly_once", "--set", "commit.interval=10m", "--set", "transaction.timeout.ms=15m",
    )  # fmt: skip
    for expected in ({"a": 2, "b": 1}, {"a": 4, "b": 2}):
        worker = start(*arguments)
        produce(broker, words[0], "a", "b", "a")
        await_processed(worker, 3)
        worker.signal(number)
        assert worker.wait() == 0, worker.said
        # The commit interval is ten minutes, so everything was committed at the end of the run. Counting takes two
        # tasks; the second one may wait for the transaction of the first, hence the last run.
        last = start(*arguments[:-4])
        assert counted(broker, words[1], expected) == expected
        last.signal(signal.SIGTERM)
        assert last.wait() == 0, last.said


@pytest.mark.slow
def test_run_prints_no_secret(
    broker: Broker, start: Start, application: Application, words: tuple[str, str], app_id: str, tmp_path: Path
) -> None:
    """Passwords from file, environment and flags are in no output of the worker, even with --verbose."""
    (tmp_path / "millpond.toml").write_text(
        'sasl.password = "swordfish-1"\napp.api.token = "swordfish-2"', encoding="utf-8"
    )
    worker = start(
        "run", f"{application(COUNT)}:count",
        "--bootstrap-servers", broker.bootstrap_servers, "--application-id", app_id,
        "--set", "producer.ssl.key.password=swordfish-3", "--set", "debug=conf", "--verbose",
    )  # fmt: skip
    kafka.eventually(lambda: worker.says("-> running"), "the worker runs")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "swordfish" not in worker.said
    assert len(worker.said) > 1000


@pytest.mark.slow
def test_missing_topic_is_one_sentence_and_status_1(
    broker: Broker, millpond: Millpond, application: Application, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the missing topic."""
    monkeypatch.setenv("WORDS", "no-such-topic")
    name = application(COUNT)
    ended = millpond(
        "run", f"{name}:count", "--bootstrap-servers", broker.bootstrap_servers, "--application-id", app_id
    )
    assert ended.status == 1
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("millpond: ")
    assert "no-such-topic" in last


def test_unreachable_broker_is_one_sentence_and_status_1(
    millpond: Millpond, application: Application, app_id: str
) -> None:
    """The message comes after the configured timeout, and has the address."""
    ended = millpond(
        "run", f"{application(COUNT)}:count", "--bootstrap-servers", "127.0.0.1:1", "--application-id", app_id,
        "--set", "task.timeout=1s",
    )  # fmt: skip
    assert ended.status == 1
    assert "127.0.0.1:1" in ended.err.strip().splitlines()[-1]
