"""The `server.properties` of a broker that has one machine, one user and a short life."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ("render", "server_properties")


def server_properties(host: str, port: int, controller_port: int, data: Path) -> dict[str, str]:
    """Settings of a KRaft node that is broker and controller in one. Whatever is absent has Kafka's own default.

    Args:
        host: address to listen on and to advertise.
        port: port clients connect to.
        controller_port: port the node's controller listens on, always on the loopback interface.
        data: directory of the log segments.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        # A misspelled topic should fail, as it does on a real cluster.
        "auto.create.topics.enable": "false",
        # A replay has the timestamps of its day: by default the broker would delete what is older than a week while it is read.
        "log.retention.ms": "-1",
        # There is one replica of everything, and each partition of an internal topic costs start-up time and files.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        # Nobody else is going to join the group.
        "group.initial.rebalance.delay.ms": "0",
        # A transaction that timed out is aborted within a second, not within ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # The default of 128 MB would be a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": "16777216",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        # After kill() the controller refuses the new incarnation until the old one's session ends: 9 s by default. Less than 5 s, and a machine
        # that is busy elsewhere makes the broker look dead.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "250",
    }


def render(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file. Backslashes are the only character that needs care in our values."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())
