"""The speed at which a consumer group drains its input: committed offsets over time, and the CPU time used meanwhile.

The definition is the same for both sides. A run is measured between two moments, both observed by asking the broker for
the group's committed offsets every few milliseconds:

- the first at which the group has committed at least `WARM_UP` of the input (start-up, group join, table load and the
  JVM's warm-up lie before it),
- the first at which it has committed all of it.

Records per second are the records committed between the two by the time between the two; CPU is the process's own
between the same two. A transaction that is not yet complete does not count: the broker shows only stable offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

WARM_UP: Final = 0.3
"""The share of the input that is processed before the measurement starts."""


class Sample(NamedTuple):
    """One observation of a running process and its group."""

    at: float
    """Monotonic seconds."""
    committed: int
    """Committed input records of the group, over all partitions."""
    cpu: float
    """CPU seconds of the process so far."""


@dataclass(frozen=True, slots=True)
class Drain:
    """The measurements of one run."""

    rps: float
    """Input records per second."""
    cpu_s_per_million: float
    """CPU seconds of the process per million input records."""
    rss_mb: float
    """The peak resident set of the process, in megabytes."""
    output_records: int
    """Records in the output topic at the end; under exactly-once including transaction markers."""


def drain(samples: Sequence[Sample], records: int, *, rss_mb: float, output_records: int) -> Drain:
    """Return the measurements of a run from its samples; in the last one everything is committed.

    Raises:
        ValueError: the samples do not reach the end, or start too late.
    """
    first = next((sample for sample in samples if sample.committed >= WARM_UP * records), None)
    last = next((sample for sample in samples if sample.committed >= records), None)
    if first is None or last is None:
        message = (
            f"{samples[-1].committed if samples else 0} of {records} records were committed: the run is incomplete"
        )
        raise ValueError(message)
    counted = last.committed - first.committed
    if counted < records / 3:
        message = f"only {counted} of {records} records were left when the measurement started: use more records"
        raise ValueError(message)
    return Drain(
        rps=counted / (last.at - first.at),
        cpu_s_per_million=(last.cpu - first.cpu) / counted * 1e6,
        rss_mb=rss_mb,
        output_records=output_records,
    )
