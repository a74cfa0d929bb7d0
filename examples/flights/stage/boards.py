"""Parts of the snapshot demo: the player of flight updates, and the worker that loses its disk."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from heapq import merge
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from examples.flights.stage import data
from examples.flights.stage.player import Sender, known
from millpond.cli.dev.child_processes import ChildReaper
from millpond.queries import Client

__all__ = ("APPLICATION_ID", "TOPIC", "Board", "BoardEnded", "Committed", "Player", "create_topic", "updates")

APPLICATION_ID = "flights-boards"
TOPIC = "updates"
PARTITIONS = 4
_EARLIER_STATUSES = ("planned", "plane assigned", "crew assigned", "open for check-in")
_ROOT = Path(__file__).parents[3]
_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 120.0
_POLL_S = 0.02
_LOG_LINES = 15


class BoardEnded(Exception):
    """The worker ended by itself, or did not get ready in time."""


def create_topic(bootstrap_servers: str) -> None:
    """Create the input topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result(_TIMEOUT_S)


class Sent(NamedTuple):
    """One update of a flight."""

    day: str
    """The day on which it is sent."""
    flight: str
    status: str
    row: data.Row


def updates(rows: Sequence[data.Row], each: int) -> Iterator[Sent]:
    """Return the updates of all flights by day: some in the weeks before the flight, the last one on its day.

    Args:
        rows: the flights by day.
        each: the number of updates of each flight.
    """
    shift = {row["scheduled"][:10]: date.fromisoformat(row["scheduled"][:10]) for row in rows}

    def sent(number: int) -> Iterator[Sent]:
        back = timedelta(days=6 * (each - 1 - number))
        days = {day: (found - back).isoformat() for day, found in shift.items()}
        for row in rows:
            last = "cancelled" if known(row["dep_delay"]) is None else "departed"
            status = last if number == each - 1 else _EARLIER_STATUSES[min(number, len(_EARLIER_STATUSES) - 1)]
            flight = f"{row['carrier']}{row['flight']} {row['origin']} {row['scheduled'][:16]}"
            yield Sent(days[row["scheduled"][:10]], flight, status, row)

    return merge(*map(sent, range(each)), key=lambda update: update.day)


class Player(threading.Thread):
    """Sends updates as fast as Kafka accepts them, and pauses at some days until `resume`.

    Attributes:
        played: the number of updates sent.
        final: the number of them that are the last of their flight.
        day: the day of the last update.
        paused: set when all updates before the next pause are sent.
        error: why it ended early; None if it did not.
    """

    def __init__(self, bootstrap_servers: str, sent: Iterator[Sent], pauses: Sequence[str]) -> None:
        super().__init__(name="player", daemon=True)
        self._sender = Sender(bootstrap_servers)
        self._sent = sent
        self._pauses = list(pauses)
        self._resumed = threading.Event()
        self.played = 0
        self.final = 0
        self.day = ""
        self.paused = threading.Event()
        self.error: Exception | None = None

    def resume(self) -> None:
        """Send the updates after the pause."""
        self.paused.clear()
        self._resumed.set()

    def run(self) -> None:
        """Send all updates."""
        try:
            for update in self._sent:
                if self._pauses and update.day >= self._pauses[0]:
                    self._pauses.pop(0)
                    self._sender.finish()
                    self.paused.set()
                    self._resumed.wait()
                    self._resumed.clear()
                row, final = update.row, update.status in {"departed", "cancelled"}
                delay = known(row["dep_delay"]) if final else None
                value: dict[str, object] = {name: row[name] for name in ("origin", "dest", "carrier", "scheduled")}
                value |= {"status": update.status, "delay": None if delay is None else int(delay)}
                self._sender.send(TOPIC, update.flight, value)
                self.played += 1
                self.final += final
                self.day = update.day
            self._sender.finish()
        except Exception as error:
            self.error = error
        self.paused.set()


class Committed:
    """The committed offsets of the worker's input."""

    def __init__(self, bootstrap_servers: str) -> None:
        # Reads the group's offsets without being a member.
        settings = {"bootstrap.servers": bootstrap_servers, "group.id": APPLICATION_ID, "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "log_level": 2, "isolation.level": "read_committed"})
        self._input = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]

    def count(self) -> int:
        """Return the number of committed updates; 0 while the broker does not answer."""
        try:
            found = self._consumer.committed(self._input, timeout=_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return 0
        return sum(max(0, each.offset) for each in found)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


class Board:
    """The worker, in a child process."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        self.state = directory / "state"
        self._servers = bootstrap_servers
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log_file = directory / "worker.log"
        self._reaper = ChildReaper()  # if the demo is killed, the worker is killed too
        self._runs = 0
        self.url = ""

    def start(self, snapshots: Path | None = None) -> None:
        """Start the worker.

        Args:
            snapshots: the place of snapshots; None to replay changelogs.
        """
        self._runs += 1
        self._log_file = self._directory / f"worker-{self._runs}.log"
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        location = [] if snapshots is None else ["--set", f"bootstrap.location={snapshots}"]
        paths = [str(_ROOT / root) for root in (".", "worker")]
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "millpond.cli", "run", "examples.flights.board:boards"),
                    *("--application-id", APPLICATION_ID, "--bootstrap-servers", self._servers),
                    *("--processing-guarantee", "exactly_once", "--state-dir", str(self.state)),
                    *("--http-port", str(port), *location),
                ],
                cwd=self._directory,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # the demo handles Ctrl-C, and stops its worker
            )
        self._reaper.watch(self._process.pid)

    def await_ready(self, show: Callable[[float], None]) -> float:
        """Wait until its tasks run; return the seconds that this took.

        Raises:
            BoardEnded: it ended, or did not get ready in time.
        """
        started_at = time.monotonic()
        while not self._ready():
            took = time.monotonic() - started_at
            if self._process is None or self._process.poll() is not None or took > _START_TIMEOUT_S:
                raise BoardEnded(
                    f"the worker does not run after {took:.0f} s; the last lines of its log:\n{self.log_tail()}"
                )
            show(took)
            time.sleep(_POLL_S)
        return time.monotonic() - started_at

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=1) as response:  # noqa: S310 - http, as above
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def totals(self) -> int:
        """Return the number of flights in the totals of the airports, queried from the worker."""
        with Client(self.url) as client:
            rows = [row.value for row in client.store("airports").all()]
        return sum(row["departed"] + row["cancelled"] for row in rows)

    def lose_disk(self) -> int:
        """Kill the worker with SIGKILL, and delete its disk; return the deleted bytes."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        size = sum(each.stat().st_size for each in self.state.rglob("*") if each.is_file())
        shutil.rmtree(self.state)
        return size

    @property
    def ingested(self) -> int:
        """Rows that this run ingested from a snapshot."""
        return sum(map(int, re.findall(r"ingested (\d+) rows", self._log_file.read_text(errors="replace"))))

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    def stop(self) -> None:
        """Stop the worker."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_TIMEOUT_S)
            self._process.kill()
            self._process.wait()


def _free_port() -> int:
    """Return a free port, below those of outgoing connections, so that it stays free."""
    for port in random.sample(range(20_000, 32_000), 1_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
