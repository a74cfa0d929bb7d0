"""Records that take longer than the session, or than the transaction timeout, are processed once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from tests.many_workers.fleet import Fleet
from tests.support import kafka

pytestmark = pytest.mark.usefixtures("processes")

#: A busy machine keeps no worker from its heartbeats for so long.
SESSION_S = 2.0


def test_record_slower_than_the_session_is_processed_once(
    broker: Any, create_topic: Any, app_id: str, tmp_path: Path
) -> None:
    """The worker sends heartbeats meanwhile, so its tasks are not taken over."""
    source, target = create_topic("in"), create_topic("out")
    calls: list[str] = []

    def slow(value: str) -> str:
        calls.append(value)
        if value == "slow":
            time.sleep(2.5 * SESSION_S)
        return value

    def topology() -> mp.Topology:
        builder = mp.StreamsBuilder()
        builder.stream(source, key=mp.String, value=mp.String).map_values(slow).to(
            target, key=mp.String, value=mp.String
        )
        return builder.build()

    settings = {"processing.guarantee": "at_least_once"}
    session = {"session-timeout": f"{int(SESSION_S * 1000)}ms"}
    with Fleet(topology, broker.bootstrap_servers, app_id, tmp_path, settings, session) as fleet:
        fleet.start("w0")
        fleet.wait_shared(1)
        kafka.produce(broker.bootstrap_servers, source, [("a", "slow"), ("a", "last")])
        fleet.wait(
            lambda: (
                [row.value for row in kafka.read(broker.bootstrap_servers, target)][-1:] == [b"last"]
                and not fleet.workers["w0"].worker._parts.committer.needed()
            ),
            "both are processed and committed",
        )
        assert calls == ["slow", "last"]
        assert fleet.workers["w0"].worker.metrics.recoveries == 0
