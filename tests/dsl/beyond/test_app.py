"""An App is a topology by decorators, which is tested and run by the same object."""

from __future__ import annotations

import signal
import threading
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.app import _stopped_by_signals
from millpond.cli.application import _topology
from millpond.errors import ConfigError, TopologyError
from tests.support import kafka

String, Long = mp.String, mp.Long


def pipe(driver: Any, topic: str, *pairs: tuple[str, str]) -> None:
    driver.create_input_topic(topic, key=String, value=String).pipe_key_value_list(pairs)


def read(driver: Any, topic: str, value: Any = String) -> list[tuple[str, Any]]:
    return driver.create_output_topic(topic, key=String, value=value).read_key_values_to_list()


def test_decorated_functions_make_one_topology() -> None:
    """Streams, tables, values and effects; each function remains what it was."""
    app = mp.App("shop")
    seen: list[tuple[str, str]] = []

    @app.stream("orders", key=String, value=String)
    def count(orders: mp.KStream[str, str]) -> None:
        orders.group_by_key().count(store="counts").to_stream().to("counts", key=String, value=Long)

    @app.table("names", key=String, value=String)
    def names(table: mp.KTable[str, str]) -> None:
        table.to_stream().to("named", key=String, value=String)

    @app.map_values("words", to="lengths", key=String, value=String, result=Long)
    def length(word: str) -> int:
        return len(word)

    @app.map_values("questions", to="answers", key=String, value=String)
    async def answer(question: str) -> str:
        return f"{question}!"

    @app.foreach("events", key=String, value=String)
    def note(key: str, event: str) -> None:
        seen.append((key, event))

    with app.test() as driver:
        pipe(driver, "orders", ("a", "x"), ("a", "y"))
        pipe(driver, "names", ("a", "Ada"))
        pipe(driver, "words", ("a", "word"))
        pipe(driver, "questions", ("a", "why"))
        pipe(driver, "events", ("a", "b"))
        assert read(driver, "counts", Long)[-1] == ("a", 2)
        assert read(driver, "named") == [("a", "Ada")]
        assert read(driver, "lengths", Long) == [("a", 4)]
        assert read(driver, "answers") == [("a", "why!")]
    assert seen == [("a", "b")]
    assert length("four") == 4
    assert str(_topology(app, "shop:app").describe()) == str(app.build().describe())


def test_wrong_uses_are_errors() -> None:
    """Names of applications are those of topics, and decorated functions are checked as in the DSL."""
    with pytest.raises(TopologyError, match="not the number 3"):
        mp.App(3)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="application"):
        mp.App("my shop")
    app = mp.App("shop")
    with pytest.raises(TopologyError, match=r"map_values\(\) calls .* with \(value\)"):
        app.map_values("in", to="out")(lambda: 1)  # type: ignore[arg-type, misc]
    with pytest.raises(ConfigError, match=r"setting 'bootstrap\.servers' is missing"):
        app.worker()
    with pytest.raises(ConfigError, match=r"did you mean .commit\.interval\.ms"):
        app.worker(bootstrap_servers="localhost:1", commit_intervall_ms=3)


def test_the_name_is_the_application_id_unless_a_setting_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment and settings come before the name."""
    app = mp.App("shop")
    app.foreach("in", key=mp.String, value=mp.String)(lambda key, value: None)
    settings = {"bootstrap_servers": "localhost:1", "http_port": -1}
    assert app.worker(**settings).config.application_id == "shop"
    assert app.worker(application_id="other", **settings).config.application_id == "other"
    monkeypatch.setenv("MILLPOND_APPLICATION_ID", "third")
    assert app.worker(**settings).config.application_id == "third"
    given = mp.Config.of(application_id="fourth", **settings)
    assert app.worker(given).config is given


def test_signals_stop_a_running_application_once() -> None:
    """The first one asks the worker to end; the handlers of the program are back then, and after the end."""
    before = signal.getsignal(signal.SIGTERM)
    stops: list[int] = []
    with _stopped_by_signals(lambda: stops.append(1)):
        signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is before
    assert stops == [1]
    assert signal.getsignal(signal.SIGTERM) is before

    def elsewhere() -> None:
        with _stopped_by_signals(lambda: None):
            stops.append(2)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert stops == [1, 2]


def test_an_application_runs_batches_and_coroutines_exactly_once(broker, create_topic, app_id, tmp_path):
    """On a broker, each record has one committed result, in the order of the records of its key."""
    source, batched, answered = create_topic("in", partitions=2), create_topic("batched"), create_topic("answered")
    servers = broker.bootstrap_servers
    records = [(f"k{number % 5}", str(number)) for number in range(300)]
    kafka.produce(servers, source, records)
    app = mp.App(app_id)

    async def answer(value: str) -> str:
        return f"{value}!"

    @app.stream(source, key=String, value=String)
    def steps(stream: mp.KStream[str, str]) -> None:
        stream.map_batches(lambda values: [f"{value}!" for value in values]).to(batched, key=String, value=String)
        stream.map_values_async(answer, max_concurrency=4).to(answered, key=String, value=String)

    settings = {"bootstrap_servers": servers, "state_dir": tmp_path, "processing_guarantee": "exactly_once"}
    with app.worker(http_port=-1, **settings) as worker:
        assert worker.wait_for(mp.WorkerState.RUNNING, timedelta(seconds=40))
        for topic in (batched, answered):
            kafka.eventually(lambda topic=topic: len(kafka.read(servers, topic)) >= 300, "all is committed")
    for topic in (batched, answered):
        found = [(row.key.decode(), row.value.decode()) for row in kafka.read(servers, topic)]
        for key in ("k0", "k1", "k2", "k3", "k4"):
            assert [value for of, value in found if of == key] == [f"{value}!" for of, value in records if of == key]
