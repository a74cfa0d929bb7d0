"""Workers that hand tasks to each other, as the commits in Kafka show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond as mp
from tests.many_workers.fleet import Fleet
from tests.ownership.watch import await_shown, check_chains, read_chains
from tests.support import kafka

PARTITIONS = 4


def test_hand_overs_between_workers_are_links_of_one_chain(
    broker: Any, create_topic: Any, app_id: str, tmp_path: Path, processes: None
) -> None:
    """A worker that joins gets tasks from another, one that leaves hands its own over: no chain breaks."""
    servers = broker.bootstrap_servers
    source, target = create_topic("in", PARTITIONS), create_topic("out", PARTITIONS)

    def topology() -> mp.Topology:
        builder = mp.StreamsBuilder()
        stream = builder.stream(source, key=mp.String, value=mp.String)
        stream.group_by_key().count(store="counts", caching=False).to_stream().to(target, value=mp.Long)
        return builder.build()

    settings = {"processing.guarantee": "exactly_once", "commit.interval.ms": 100}
    records = [(str(number), "x") for number in range(400)]
    sent = 0
    with Fleet(topology, servers, app_id, tmp_path, settings) as fleet:
        for change in (lambda: fleet.start("w0"), lambda: fleet.start("w1"), lambda: fleet.stop("w0")):
            change()
            kafka.produce(servers, source, records)
            sent += len(records)
            fleet.wait_shared(PARTITIONS)
            kafka.produce(servers, source, records)
            sent += len(records)
            fleet.wait(lambda wanted=sent: _committed(servers, app_id, source) == wanted, "all is committed")
    await_shown(servers, app_id)
    chains = read_chains(servers, app_id)
    check_chains(chains)
    assert len(chains) == PARTITIONS
    for chain in chains.values():
        assert chain[0].owner == "w0"
        assert chain[-1].owner == "w1"
    topologies = {commit.topology for chain in chains.values() for commit in chain}
    assert len(topologies) == 1
    assert topologies != {""}


def _committed(servers: str, group: str, topic: str) -> int:
    return sum(max(offset, 0) for offset, _ in kafka.committed_offsets(servers, group, topic).values())
