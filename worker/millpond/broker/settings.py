"""The `server.properties` of the embedded broker, for one user on one machine and for a short time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ("port_of", "render", "server_properties")


def server_properties(host: str, port: int, controller_port: int, data: Path) -> dict[str, str]:
    """Return the settings of a KRaft node that is both broker and controller. Other settings have Kafka's defaults.

    Args:
        host: address to listen on and to advertise.
        port: port for clients.
        controller_port: port of the node's controller, on the loopback interface.
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
        # Replayed records have old timestamps: by default the broker would delete those older than a week.
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
        # No other member will join the group.
        "group.initial.rebalance.delay.ms": "0",
        # Abort a timed-out transaction within one second instead of ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # The default of 128 MB would be a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": "16777216",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        # After kill() the controller rejects the new incarnation until the session of the old one ends: 9 s by default.
        # With less than 5 s, the broker would seem dead on a busy machine.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "250",
    }


def port_of(properties: str, host: str) -> int | None:
    """Return the port for clients in the text of a properties file; None if it has none, or another host."""
    found = re.search(rf"^advertised\.listeners=PLAINTEXT://{re.escape(host)}:(\d+)$", properties, re.MULTILINE)
    return None if found is None else int(found[1])


def render(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file. Of the characters in our values, only backslashes need escaping."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())
