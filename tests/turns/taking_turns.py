"""Lets a Java application and a millpond worker run one application id in turns, on a real broker."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import millpond as mp
from bench.sides import compile_java
from millpond.broker import jars, java
from tests.support import kafka
from tests.turns.topology import INPUTS, topology

__all__ = ("Record", "Turns", "compiled", "describe", "draw_records")

PARTITIONS = 2
_SOURCE = Path(__file__).parent / "java" / "Turns.java"
_END_S = 300.0
_KEYS = [f"k{number}" for number in range(7)]
_WEIGHTS = {"left": 8, "right": 5, "table": 3, "other": 2, "versions": 2}
_START_MS = int(time.time()) // 600 * 600_000 - 3_600_000
"""An hour ago: the broker deletes older records of changelogs with a retention, half a minute after its start."""


@dataclass(frozen=True)
class Record:
    """One input record."""

    topic: str
    key: str
    value: str | None
    timestamp: int


def draw_records(seed: int, count: int) -> list[Record]:
    """Return records of all inputs.

    Their times only grow, since stream time begins anew when a Java application starts.
    A record that follows another within the windows of the joins is as frequent as one that does not.
    """
    choices = random.Random(seed)
    found, now = [], _START_MS
    for number in range(count):
        topic = choices.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
        now += choices.choice([1, 20, 300, 900, 2500] if number % 40 else [30_000])
        value: str | None = f"{choices.randrange(10)}{choices.choice('abcd')}{choices.randrange(7)}"
        if topic not in {"left", "right"} and choices.random() < 0.15:
            value = None
        found.append(Record(topic, choices.choice(_KEYS), value, now))
    return found


def compiled(build: Path) -> list[str]:
    """Compile the Java side; return the command that starts it, without arguments."""
    classpath = jars.paths("kafka-streams")
    home = java.find_jdk() / "bin"
    classes = compile_java(_SOURCE, build, home, classpath)
    return [str(home / "java"), "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, (classes, *classpath))), "Turns"]


def describe(command: Sequence[str]) -> str:
    """Return the description of the Java side's topology."""
    return subprocess.run([*command, "describe"], check=True, capture_output=True, text=True, timeout=100).stdout


class Turns:
    """An application whose input is in the topics already, and which one side after the other continues."""

    def __init__(self, servers: str, command: Sequence[str], application: str, prefix: str, directory: Path) -> None:
        self._servers = servers
        self._command = command
        self._application = application
        self._prefix = prefix
        self._directory = directory
        directory.mkdir(exist_ok=True)
        self.produced = 0
        self.sides: Mapping[str, Callable[[], Any]] = {"java": self._java, "millpond": self._millpond}

    def run(self, side: str, until: Callable[[], bool]) -> None:
        """Start a side, wait until `until()` is true, and end it in order."""
        with self.sides[side]() as alive:
            deadline = time.monotonic() + _END_S
            while not until():
                alive()
                assert time.monotonic() < deadline, f"{side} did not get as far as it should within {_END_S} s"
                time.sleep(0.02)

    def produce(self, records: Sequence[Record]) -> None:
        """Write records of one time range to their topics."""
        for topic in INPUTS:
            rows = [(each.key, each.value, each.timestamp) for each in records if each.topic == topic]
            if rows:
                kafka.produce(self._servers, topic, rows)
            if topic == "left":
                self.produced += len(rows)

    def got_to(self, count: int) -> bool:
        """Whether the application has committed so many records of `left`."""
        offsets = kafka.committed_offsets(self._servers, self._application, "left")
        return sum(max(0, offset) for offset, _ in offsets.values()) >= count

    def done(self) -> bool:
        """Whether the application has committed all of its input, internal topics included."""
        inner = {
            name
            for name in kafka.topic_names(self._servers, f"{self._application}-")
            if not name.endswith("-changelog")
        }
        topics = {*INPUTS, *inner} - {"global"}
        ends = self._ends(topics)
        # What a commit wrote was written before it can be seen: all is done if no topic has grown meanwhile.
        return all(self._drained(topic, end) for topic, end in ends.items()) and self._ends(topics) == ends

    def _ends(self, topics: Iterable[str]) -> dict[str, dict[int, int] | None]:
        return {topic: kafka.settled_ends(self._servers, topic) for topic in topics}

    def _drained(self, topic: str, ends: Mapping[int, int] | None) -> bool:
        if ends is None:
            return False
        offsets = kafka.committed_offsets(self._servers, self._application, topic)
        # The marker at the end of a transaction has an offset, too, which need not be committed.
        return all(end == 0 or offsets[partition][0] >= end - (topic not in INPUTS) for partition, end in ends.items())

    @contextmanager
    def _java(self) -> Iterator[Callable[[], None]]:
        log = self._directory / f"{self._application}-java.log"
        arguments = {
            "application": self._application, "bootstrap": self._servers, "prefix": self._prefix,
            "state": self._directory / "java-state",
        }  # fmt: skip
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self._command, "run", *(f"{name}={value}" for name, value in arguments.items())],
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

            def alive() -> None:
                assert process.poll() is None, f"the Java side ended:\n{log.read_text()[-3000:]}"

            try:
                yield alive
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(_END_S) == 0, f"the Java side did not end in order:\n{log.read_text()[-3000:]}"
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    @contextmanager
    def _millpond(self) -> Iterator[Callable[[], None]]:
        config = mp.Config.of(
            {
                "application.id": self._application,
                "bootstrap.servers": self._servers,
                "worker.id": "w0",
                "state.dir": str(self._directory / "millpond-state"),
                "processing.guarantee": "exactly_once",
                "commit.interval.ms": 20,
                "poll.ms": 20,
                "http.port": -1,
            }
        )
        worker = mp.Worker(topology(self._prefix), config)

        def alive() -> None:
            assert worker.exception is None, f"the worker failed: {worker.exception!r}"

        with worker:
            yield alive
            worker.close(timedelta(seconds=_END_S))
        alive()
