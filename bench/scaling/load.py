"""Fills a topic in one transaction that is committed on command: until then no consumer sees a record.

So workers can start and get their tasks before there is input; then all records are visible at once.

python -m bench.scaling.load bootstrap=… topic=… records=1000000 seed=1 start_ms=…   (prints `loaded`, reads a line,
commits)
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from confluent_kafka import Producer

from bench.options import from_arguments, to_arguments
from bench.sides import RunFailed
from bench.workloads import Data

_TIMEOUT_MS: Final = 900_000  # the longest that a broker allows
_FLUSH: Final = 120.0


class Load:
    """A loader process that has written everything, with its transaction still open."""

    def __init__(self, bootstrap: str, topic: str, data: Data) -> None:
        """Write `data` to `topic`, which must exist; return when the broker has all records.

        Raises:
            RunFailed: a record cannot be written.
        """
        arguments = to_arguments(
            bootstrap=bootstrap, topic=topic, records=data.records, seed=data.seed, start_ms=data.start_ms
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.scaling.load", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "loaded":
            self.close()
            raise RunFailed(f"{topic} could not be filled: the loader's error is above")

    def commit(self) -> None:
        """Commit the transaction, which makes the records visible."""
        self._process.communicate("commit\n", timeout=_FLUSH)
        if self._process.returncode:
            raise RunFailed("the transaction of the input could not be committed: the loader's error is above")

    def close(self) -> None:
        """Kill the loader."""
        self._process.kill()
        self._process.wait()


def _main(options: dict[str, str]) -> None:
    topic = options["topic"]
    producer = Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "transactional.id": f"load-{topic}",
            "transaction.timeout.ms": _TIMEOUT_MS,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "log_level": 3,
        }
    )
    producer.init_transactions(_FLUSH)
    producer.begin_transaction()
    data = Data(records=int(options["records"]), seed=int(options["seed"]), start_ms=int(options["start_ms"]))
    for key, value, timestamp in data.stream():
        while True:
            try:
                producer.produce(topic, value, key, timestamp=timestamp)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    if left := producer.flush(_FLUSH):
        sys.exit(f"{left} records did not reach {topic}")
    print("loaded", flush=True)
    if sys.stdin.readline():
        producer.commit_transaction(_FLUSH)


if __name__ == "__main__":
    _main(from_arguments(sys.argv[1:]))
