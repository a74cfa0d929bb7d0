"""Workers that end while their brokers hang: connections stay open, and nothing is answered."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import millpond as mp
from millpond.broker.embedded import EmbeddedBroker
from tests.many_workers.fleet import Fleet
from tests.support import kafka
from tests.support.freezing import freeze, thaw
from tests.support.measuring.standstills import Standstills

PARTITIONS = 4
RECORDS = 400
SHUTDOWN_MS = 2_000
#: Far more than the two seconds and those to close all clients, and far less than a client waits for an answer.
LIMIT_S = 30


@pytest.mark.timeout(240)
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_worker_whose_brokers_hang_ends_in_time(
    guarantee: str, own_broker: EmbeddedBroker, app_id: str, tmp_path: Path, standstills: Standstills
) -> None:
    """It can neither hand its tasks over nor commit, nor close its consumers; it ends without an error."""
    servers = own_broker.bootstrap_servers
    source, target = f"in-{app_id}", f"out-{app_id}"
    for topic in (source, target):
        kafka.create_topic(servers, topic, PARTITIONS)

    def topology() -> mp.Topology:
        builder = mp.StreamsBuilder()
        counted = builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
        counted.to_stream().to(target, key=mp.String, value=mp.Long)
        return builder.build()

    settings = {"processing.guarantee": guarantee, "shutdown.timeout.ms": SHUTDOWN_MS}
    with Fleet(topology, servers, app_id, tmp_path, settings) as fleet:
        fleet.start("w0", "w1")
        fleet.wait_shared(PARTITIONS)
        kafka.produce(servers, source, [(f"k{each % 40}", "v") for each in range(RECORDS)])
        fleet.wait(lambda: kafka.read(servers, target), "results")
        process = own_broker._process
        assert process is not None
        freeze(process)
        try:
            for running in fleet.workers.values():
                began = time.monotonic()
                running.stop(4 * LIMIT_S)
                assert standstills.lasted(began, time.monotonic()) < LIMIT_S
        finally:
            thaw(process)
