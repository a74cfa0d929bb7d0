"""The Kafka Streams side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.cluster import JVM
from bench.failover.broker_log import parse_death
from bench.failover.fleet import COMMIT_MS, Fleet, Held, Holdings, Work
from bench.options import to_arguments
from bench.sides import RunFailed, compile_java

_LOOK: Final = 0.1
_SOURCE: Final = Path(__file__).parent / "java" / "KafkaStreamsFailover.java"


class StreamsFleet(Fleet):
    """Instances of Kafka Streams, one thread each. Their tasks are read from the status files that they write."""

    side = "kafka_streams"

    def __init__(self, work: Work, java_home_bin: Path, jars: Sequence[Path], broker_log: Path) -> None:
        """Compile the Java source.

        Raises:
            RunFailed: it does not compile.
        """
        super().__init__(work)
        self._broker_log = broker_log
        self._logged = 0
        classes = compile_java(_SOURCE, work.directory / "classes", java_home_bin, jars)
        self._java = [str(java_home_bin / "java"), *JVM, "-cp", f"{classes}:{':'.join(map(str, jars))}", _SOURCE.stem]

    def command(self, worker: str) -> tuple[list[str], dict[str, str]]:
        """One instance."""
        self._status(worker).unlink(missing_ok=True)
        work = self.work
        return [
            *self._java,
            *to_arguments(
                application=work.application,
                bootstrap=work.bootstrap,
                input=work.input,
                output=work.output,
                state=self.state(worker) / "state",
                status=self._status(worker),
                owner=self.name(worker),
                commit_ms=COMMIT_MS,
                session_ms=work.session_ms,
                transaction_ms=work.transaction_ms,
            ),
        ], {}

    def holdings(self) -> Holdings:
        """Return the tasks that the instances reported a fraction of a second ago."""
        return {worker: self._held(worker) for worker in self.live}

    def kill(self, worker: str) -> None:
        """Kill an instance; later lines of the broker's log are about this death."""
        self._logged = self._broker_log.stat().st_size
        super().kill(worker)

    def freeze(self, worker: str) -> None:
        """Freeze an instance; later lines of the broker's log are about this death."""
        self._logged = self._broker_log.stat().st_size
        super().freeze(worker)

    def noticed(self, worker: str, seconds: float) -> int | None:
        """Return when a member of the group failed by the broker's log."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._broker_log.open(encoding="utf-8", errors="replace") as log:
                log.seek(self._logged)
                for line in log:
                    if (at := parse_death(line, self.work.application)) is not None:
                        return at
            time.sleep(_LOOK)
        raise RunFailed(f"kafka_streams: the death of {worker} was not detected within {seconds:.0f} s")

    def _held(self, worker: str) -> Held:
        try:
            return parse_status(self._status(worker).read_text())
        except FileNotFoundError:
            return Held(ready=False)

    def _status(self, worker: str) -> Path:
        return self.state(worker) / "status"


def parse_status(text: str) -> Held:
    """Return the status that an instance wrote: `RUNNING|0,3|1:17,2:-1`."""
    state, active, standby = text.split("|")
    copies = dict(each.split(":") for each in standby.split(",") if each)
    return Held(
        active=frozenset(int(each) for each in active.split(",") if each),
        standby={int(partition): None if lag == "-1" else int(lag) for partition, lag in copies.items()},
        ready=state == "RUNNING",
    )
