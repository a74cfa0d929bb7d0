"""Queries to a real worker on a real broker."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import millpond as mp
from millpond.queries import FailureReason, QueryFailed
from millpond.queries.client import Client
from tests.many_workers.fleet import Fleet
from tests.runtime.running import Running
from tests.support import kafka

pytestmark = pytest.mark.usefixtures("processes")

HOUR_MS = 3_600_000
SHORT = timedelta(milliseconds=500)


def counting(source, airports, target):
    """Return counts per key, per key and hour, and a global table."""
    builder = mp.StreamsBuilder()
    builder.global_table(airports, key=mp.String, value=mp.String, store="airports")
    grouped = builder.stream(source, key=mp.String, value=mp.String).group_by_key()
    grouped.count(store="counts").to_stream().to(target, key=mp.String, value=mp.Long)
    grouped.windowed_by(mp.TimeWindows(timedelta(hours=1), grace=timedelta(hours=1))).count(store="hourly")
    return builder.build()


def test_a_worker_answers_for_what_it_committed(broker, create_topic, app_id, tmp_path):
    """Counts, windows and global tables; read your writes; uncommitted rows only on request."""
    servers = broker.bootstrap_servers
    source, airports, target = create_topic("in", 3), create_topic("airports", 2), create_topic("out", 3)
    topology = counting(source, airports, target)
    kafka.produce(servers, airports, [("JFK", "Kennedy"), ("LGA", "La Guardia")])
    kafka.produce(servers, source, [(f"k{each % 50}", "v", 1 + each * 60_000) for each in range(1_000)])
    ends = {f"{source}-{partition}": end for partition, end in kafka.end_offsets(servers, source).items()}
    settings = {"http.port": 0, "processing.guarantee": "exactly_once", "commit.interval.ms": 50}
    with Running(topology, servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: running.worker.metrics.port, "it serves")
        with Client(running.worker.metrics.http.url, timeout=timedelta(seconds=40)) as client:
            # The first question comes while the worker starts: a global store answers when it is complete.
            assert [row.key for row in client.store("airports").all()] == ["JFK", "LGA"]
            counts = client.store("counts", key=mp.String, value=mp.Long)
            hourly = client.store("hourly", key=mp.String, value=mp.Long)
            rows = counts.all(position=ends)  # also waits for the start, and for all that was produced before
            assert {row.key: row.value for row in rows} == {f"k{each}": 20 for each in range(50)}
            assert rows.position == ends
            assert rows.workers == ("w0",)
            assert counts.get("k7") == 20
            assert counts.get("none") is None
            assert [row.key for row in counts.range("k10", "k12")] == ["k10", "k11", "k12"]
            fetched = [(row.window.start, row.value) for row in hourly.fetch("k7", 15 * HOUR_MS, 16 * HOUR_MS)]
            expected = [each * 60_000 for each in range(7, 1_000, 50)]
            assert fetched == [
                (hour * HOUR_MS, count)
                for hour in (15, 16)
                if (count := sum(hour * HOUR_MS <= each < (hour + 1) * HOUR_MS for each in expected))
            ]
            airport_ends = {f"{airports}-{each}": end for each, end in kafka.end_offsets(servers, airports).items()}
            assert client.store("airports").lookup("JFK", position=airport_ends).position == airport_ends
            assert client.store("airports").get("JFK") == "Kennedy"
            assert [row.key for row in client.store("airports").all()] == ["JFK", "LGA"]
            assert client.metadata("counts", "k7")["active"]["worker"] == "w0"
            assert {each["name"] for each in client.stores()} == {"airports", "counts", "hourly"}

            kafka.produce(servers, source, [("k7", "v", 1_000 * 60_000)])
            partition = counts.lookup("k7").partition
            end = kafka.end_offsets(servers, source)[partition]
            answer = counts.lookup("k7", position={f"{source}-{partition}": end})
            assert (answer.value, answer.position[f"{source}-{partition}"]) == (21, end)
            with pytest.raises(QueryFailed) as raised:
                counts.get("k7", position={f"{source}-{partition}": end + 1}, timeout=SHORT)
            assert raised.value.reason is FailureReason.NOT_UP_TO_BOUND
            assert counts.get("k7", isolation="read_uncommitted") == 21
        figures = running.worker.metrics.registry.get_sample_value(
            "millpond_query_seconds_count",
            {"application_id": app_id, "worker": "w0", "kind": "key", "outcome": "not_up_to_bound"},
        )
        assert figures == 1


def test_uncommitted_rows_are_read_only_on_request(broker, create_topic, app_id, tmp_path):
    """With a long commit interval, the task is far ahead of its commits."""
    servers = broker.bootstrap_servers
    source, airports, target = create_topic("in"), create_topic("airports"), create_topic("out")
    settings = {"http.port": 0, "processing.guarantee": "at_least_once", "commit.interval.ms": 3_600_000}
    with Running(counting(source, airports, target), servers, app_id, tmp_path, settings) as running:
        running.wait_running()
        with Client(running.worker.metrics.http.url) as client:
            counts = client.store("counts")
            kafka.produce(servers, source, [("key", "v")] * 10)
            running.wait(lambda: counts.get("key", isolation="read_uncommitted") == 10, "all is processed")
            assert counts.get("key") is None
            assert [row.value for row in counts.all(isolation="read_uncommitted")] == [10]
            assert list(counts.all()) == []


def test_queries_do_not_block_processing(broker, create_topic, app_id, tmp_path, figures):
    """Continuous readers while records arrive: everything is processed, and each answer is of one moment."""
    servers = broker.bootstrap_servers
    source, airports, target = create_topic("in"), create_topic("airports"), create_topic("out")
    settings = {"http.port": 0, "processing.guarantee": "exactly_once", "commit.interval.ms": 20}
    number = 30_000
    with Running(counting(source, airports, target), servers, app_id, tmp_path, settings) as running:
        running.wait_running()
        kafka.produce(servers, source, [(f"k{each % 3_000}", "v") for each in range(number)])
        with Client(running.worker.metrics.http.url, timeout=timedelta(seconds=40)) as client:
            counts = client.store("counts")
            total, answers, longest = 0, 0, 0.0
            while total < number:
                before = time.monotonic()
                rows = counts.all()
                seen = sum(row.value for row in rows)
                longest = max(longest, time.monotonic() - before)
                assert seen >= total, "what was committed stays"
                assert rows.position.get(f"{source}-0", 0) <= seen
                total, answers = seen, answers + 1
            assert total == number
    figures.note(f"longest of {answers} queries of all rows while records arrive", longest, "s")


def test_queries_continue_while_workers_change(broker, create_topic, app_id, tmp_path):
    """Two workers, a third one joins, the first one leaves: each query is answered by the current owner."""
    servers = broker.bootstrap_servers
    source, airports, target = create_topic("in", 4), create_topic("airports"), create_topic("out", 4)
    kafka.produce(servers, airports, [("JFK", "Kennedy")])
    kafka.produce(servers, source, [(f"k{each % 40}", "v") for each in range(400)])
    ends = {f"{source}-{partition}": end for partition, end in kafka.end_offsets(servers, source).items()}
    settings = {"http.port": 0, "processing.guarantee": "exactly_once", "state.cleanup.delay.ms": 100}
    options = {"standby-replicas": 1}
    expected = {f"k{each}": 10 for each in range(40)}
    with Fleet(lambda: counting(source, airports, target), servers, app_id, tmp_path, settings, options) as fleet:
        fleet.start("w0", "w1")
        fleet.wait_shared(4)
        urls = [each.worker.metrics.http.url for each in fleet.workers.values()]
        over = threading.Event()
        answers: list[str] = []

        def ask(url):
            with Client(url, *urls, timeout=timedelta(seconds=40)) as client:
                counts = client.store("counts")
                assert {row.key: row.value for row in counts.all(position=ends)} == expected
                number = 0
                while not over.is_set() or number < 20:
                    number += 1
                    found = counts.lookup(f"k{number % 40}")
                    assert found.value == 10, found
                    answers.append(found.worker)
                    if number % 10 == 0:
                        rows = counts.all()
                        assert {row.key: row.value for row in rows} == expected
                        assert len(list(client.store("hourly").fetch(f"k{number % 40}"))) == 1
                        assert client.store("airports").get("JFK") == "Kennedy"

        with ThreadPoolExecutor(2) as executor:
            asking = [executor.submit(ask, url) for url in urls[::-1]]
            try:
                fleet.wait(lambda: {"w0", "w1"} <= set(answers), "both answer")
                fleet.start("w2")
                fleet.wait(lambda: fleet.active().get("w2"), "the third has a task")
                fleet.wait(lambda: "w2" in answers[-50:], "the third answers")
                fleet.stop("w0")
                begun = len(answers)
                fleet.wait(lambda: len(answers) > begun + 20, "queries are answered without the first")
            finally:
                over.set()
            for each in asking:
                each.result(60)
            assert set(answers) == {"w0", "w1", "w2"}
