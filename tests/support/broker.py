"""One broker for a whole test run: the first process that needs it starts it, and all pytest workers share it.

A broker per pytest-xdist worker would cost more than the tests that use it. The broker belongs to pytest's main
process: when that process ends, the watchdog stops the broker and deletes its data.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from millpond.broker import EmbeddedBroker
from millpond.errors import BrokerError

from . import evidence, set_up

__all__ = ("Broker", "OwnBroker", "end_of_shared_log", "free_port", "open_session", "renew", "shared_broker")

#: Records of tests may have timestamps of 1970: brokers check retention every five minutes by default.
_PROPERTIES = {"log.retention.check.interval.ms": str(86_400_000)}

#: Below the ports of outgoing connections, so that they stay free. None is returned twice.
_ports = iter(random.SystemRandom().sample(range(20_000, 32_000), 12_000))


def free_port() -> int:
    """Return a free port of this machine, which no other test process gets as long as this one runs.

    A locked file claims the port; it stays open until the process ends.
    """
    directory = Path(tempfile.gettempdir()) / f"millpond-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    for port in _ports:
        claim = os.open(directory / str(port), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(claim)
        else:
            return port
    raise AssertionError("no port is free")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that tests may use but must not stop."""

    bootstrap_servers: str
    log_file: Path | None = None

    def __post_init__(self) -> None:
        """Remember that other tests use it."""
        _shared[self.bootstrap_servers] = self.log_file


class OwnBroker(EmbeddedBroker):
    """An embedded broker for tests, whose start is a step of a set-up, and whose log is evidence."""

    _started = False

    def start(self) -> Self:
        """Start the broker; if it does not answer in time, begin once more.

        Raises:
            SetUpError: it did not answer a second time either.
            BrokerError: the broker ended.
        """
        set_up.twice(self._start_once, again=self._discard, log=self.end_of_log)
        self._started = True
        _running.add(self)
        evidence.follow(self.log_file)
        return self

    def stop(self) -> None:
        """Stop the broker."""
        _running.discard(self)
        super().stop()

    def kill(self) -> None:
        """Kill the broker."""
        _running.discard(self)
        super().kill()

    def close(self) -> None:
        """Stop the broker and remove a temporary data directory; its log stays evidence of the test that runs."""
        self.stop()
        if self._started and self._given_dir is None:
            evidence.keep(self.log_file)
        super().close()

    def detach(self) -> int:
        """Leave the broker to its watchdog."""
        _running.discard(self)
        return super().detach()

    def end_of_log(self) -> str:
        """Return the last lines of its log."""
        return set_up.end_of(self.log_file)

    def _start_once(self) -> None:
        try:
            super().start()
        except BrokerError as error:
            what = str(error).partition(";")[0]
            if " within " in what:
                raise set_up.Late(what) from error
            raise

    def _discard(self) -> None:
        """Remove the data of a broker that never answered."""
        if not self._started:
            shutil.rmtree(self.data_dir / "data", ignore_errors=True)


_running: set[OwnBroker] = set()
"""Brokers that this process started for a test or a module."""
_shared: dict[str, Path | None] = {}
"""The addresses of brokers that other tests use, too, and their logs."""


def renew(bootstrap_servers: str) -> list[OwnBroker]:
    """Kill and start the broker of an address that hangs, with its data, and return it; leave a shared broker alone.

    The address may be that of a proxy: then these are all brokers that this process started.
    """
    if bootstrap_servers in _shared:
        return []
    addresses = bootstrap_servers.split(",")
    hanging = [each for each in _running if each.bootstrap_servers in addresses] or list(_running)
    for each in hanging:
        each.kill()
        each.start()
    return hanging


def end_of_shared_log(bootstrap_servers: str) -> str:
    """Return the last lines of a shared broker's log; nothing if its log is elsewhere."""
    log = _shared.get(bootstrap_servers)
    return set_up.end_of(log) if log is not None else ""


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
            broker = OwnBroker(owner_pid=int((directory / "owner").read_text()), properties=_PROPERTIES).start()
            address.write_text(broker.bootstrap_servers)
            (directory / "broker.shared-log").write_text(f"{broker.log_file}\n")
            broker.detach()
    return Broker(address.read_text(), Path((directory / "broker.shared-log").read_text().strip()))
