"""A copy whose worker has lost only its brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.queries.client import Client
from tests.chaos.processes import broker_with_listeners
from tests.chaos.proxying import Cut, Proxies
from tests.many_workers.fleet import Fleet
from tests.support import kafka
from tests.support.broker import free_port

BOUND_S = 1.0


def _counting() -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts").to_stream().to(
        "out", key=mp.String, value=mp.Long
    )
    return builder.build()


@pytest.mark.slow
@pytest.mark.usefixtures("own_brokers")
def test_cut_off_copy_keeps_to_the_staleness_bound(app_id: str, tmp_path: Path) -> None:
    """It lacks the newer value, but knows how stale it is: beyond the bound the active task answers, or no worker."""
    port = free_port()
    settings = {"http.port": 0, "commit.interval.ms": 50, "processing.guarantee": "exactly_once"}
    with Proxies() as proxies:
        proxy = proxies.before(lambda: port)
        with broker_with_listeners(tmp_path / "broker", {"w1": (port, proxy)}) as broker:
            servers = broker.bootstrap_servers
            kafka.create_topic(servers, "in")
            kafka.create_topic(servers, "out")
            with Fleet(_counting, servers, app_id, tmp_path, settings, {"standby-replicas": 1}) as fleet:
                fleet.start("w0")
                fleet.wait(lambda: fleet.active() == {"w0": ["0_0"]}, "w0 has the task")
                fleet.start("w1", **{"bootstrap.servers": f"127.0.0.1:{proxy.port}"})
                fleet.wait(lambda: "w1" in fleet.active() and fleet.copies()["w1"] == ["0_0"], "w1 has a copy")
                kafka.produce(servers, "in", [("a", "x")])
                with Client(fleet.workers["w1"].worker.metrics.http.url) as client:
                    counts = client.store("counts", key=mp.String, value=mp.Long)
                    bound = {"max_staleness": timedelta(seconds=BOUND_S)}
                    kafka.eventually(lambda: _asked(counts.lookup, bound) == (1, "w1"), "the copy answers", 40)
                    (copy,) = fleet.workers["w1"].worker._parts.executor.held.values()
                    end = kafka.end_offsets(servers, f"{app_id}-counts-changelog")[0]
                    fleet.wait(lambda: copy.changelogs[0].position == end, "it is at the very end")
                    proxy.cut(Cut.BOTH)
                    kafka.produce(servers, "in", [("a", "x")])
                    kafka.read_until(servers, "out", 2)
                    with Client(fleet.workers["w0"].worker.metrics.http.url) as active:
                        # Its commit is in Kafka before it is in its store.
                        owned = active.store("counts", key=mp.String, value=mp.Long)
                        kafka.eventually(lambda: owned.get("a") == 2, "the active task answers the newer value")
                    newer = time.monotonic()  # from now on whoever answers 1 is stale, and has to know it
                    while True:
                        asked = time.monotonic()
                        answer = counts.lookup("a", **bound)
                        if answer.value == 2:
                            break
                        assert answer.staleness >= timedelta(seconds=asked - newer - 0.002)
                        time.sleep(0.02)
                    assert answer.worker == "w0"
                    long = {"max_staleness": timedelta(hours=1)}
                    first, before = counts.lookup("a", **long), time.monotonic()
                    time.sleep(0.05)
                    after, second = time.monotonic(), counts.lookup("a", **long)
                    assert (first.value, first.worker, second.value, second.worker) == (1, "w1", 1, "w1")
                    assert first.staleness >= timedelta(seconds=BOUND_S)
                    assert second.staleness - first.staleness >= timedelta(seconds=after - before - 0.002)
                    proxy.mend()
                    kafka.eventually(lambda: _asked(counts.lookup, bound) == (2, "w1"), "the copy is back", 40)


def _asked(lookup: Callable[..., Any], bound: dict[str, timedelta]) -> tuple[Any, str]:
    answer = lookup("a", **bound)
    return answer.value, answer.worker
