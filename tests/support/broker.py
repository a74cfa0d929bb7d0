"""One broker for a whole test run: the first process that needs it starts it, and all pytest workers share it.

A broker per pytest-xdist worker would cost more than the tests that use it. The broker belongs to pytest's main
process: when that process ends, the watchdog stops the broker and deletes its data.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
from dataclasses import dataclass
from pathlib import Path

from millpond.broker import EmbeddedBroker

__all__ = ("Broker", "free_port", "open_session", "shared_broker")

#: Records of tests may have timestamps of 1970: brokers check retention every five minutes by default.
_PROPERTIES = {"log.retention.check.interval.ms": str(86_400_000)}

#: Below the ports of outgoing connections, so that they stay free. None is returned twice, and test processes with one
#: seed do not choose the same ones.
_ports = iter(random.SystemRandom().sample(range(20_000, 32_000), 12_000))


def free_port() -> int:
    """Return a free port of this machine."""
    for port in _ports:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that tests may use but must not stop."""

    bootstrap_servers: str


def open_session(directory: Path) -> None:
    """Make this process the owner of the run's broker, if a test needs one."""
    (directory / "owner").write_text(str(os.getpid()))
    # Brokers of tests live for seconds: the optimizing compiler and the parallel collector would cost more than they
    # save. Set for all processes of the run, since demos and commands start brokers, too.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def shared_broker(directory: Path) -> Broker:
    """Return the broker of the run that `directory` belongs to; the first caller starts it."""
    address = directory / "bootstrap-servers"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            broker = EmbeddedBroker(owner_pid=int((directory / "owner").read_text()), properties=_PROPERTIES).start()
            address.write_text(broker.bootstrap_servers)
            (directory / "broker.shared-log").write_text(f"{broker.log_file}\n")
            broker.detach()
    return Broker(address.read_text())
