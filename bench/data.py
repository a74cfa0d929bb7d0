"""Loads the input topics of a run, in a child process, whose memory and threads do not disturb the measurement.

python -m bench.data bootstrap=… topic=… partitions=10 rows=stream records=1000000 seed=1 start_ms=…
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final, Literal

from confluent_kafka import Message, Producer

from bench.options import from_arguments, to_arguments
from bench.workloads import Data

Rows = Literal["stream", "table"]

# One idempotent producer with large batches, and the partitioner of Java producers.
_PRODUCER: Final = {
    "enable.idempotence": True,
    "linger.ms": 50,
    "batch.size": 1 << 20,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 512 << 10,
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    "log_level": 3,  # hides the warning that a new broker is not ready for idempotence yet
}
_POLL_EVERY: Final = 20_000  # records between two polls for delivery reports


def load(bootstrap: str, topic: str, rows: Rows, data: Data) -> None:
    """Fill `topic`, which must exist and be empty; return once the broker has every record.

    Args:
        bootstrap: the broker, `host:port`.
        topic: the topic to fill.
        rows: `stream` for the workloads' input, `table` for the rows that `join` looks up.
        data: the records.

    Raises:
        subprocess.CalledProcessError: the loader failed; the reason is on standard error.
    """
    arguments = to_arguments(
        bootstrap=bootstrap, topic=topic, rows=rows, records=data.records, seed=data.seed, start_ms=data.start_ms,
        keys=data.keys,
    )  # fmt: skip
    subprocess.run([sys.executable, "-m", "bench.data", *arguments], check=True)


def _produce(options: dict[str, str]) -> None:
    data = Data(
        records=int(options["records"]),
        seed=int(options["seed"]),
        start_ms=int(options["start_ms"]),
        keys=int(options["keys"]),
    )
    failures: list[str] = []

    def failed(error: object, _message: Message) -> None:
        failures.append(str(error))

    producer = Producer({**_PRODUCER, "bootstrap.servers": options["bootstrap"], "on_delivery": failed})
    topic = options["topic"]
    for number, (key, value, timestamp) in enumerate(data.stream() if options["rows"] == "stream" else data.table()):
        if not number % _POLL_EVERY:
            producer.poll(0)
        while True:
            try:
                producer.produce(topic, value, key, timestamp=timestamp)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    left = producer.flush(120)
    if left or failures:
        sys.exit(
            f"{left + len(failures)} records did not reach {topic}: {failures[0] if failures else 'time limit reached'}"
        )


if __name__ == "__main__":
    _produce(from_arguments(sys.argv[1:]))
