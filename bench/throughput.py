"""One throughput run: a side drains input topics that are full at its start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from bench.cluster import Cluster, Group
from bench.processes import cpu_seconds, peak_memory_mb
from bench.progress import Drain, Sample, drain
from bench.sides import Commands, Job, SideName

_POLL: Final = 0.02  # seconds between two polls: about a hundredth of the shortest run's measured time
_STALLED: Final = 90.0  # seconds without a new commit


def measure(
    commands: Commands,
    cluster: Cluster,
    side: SideName,
    job: Job,
    partitions: int,
    records: int,
    on_progress: Callable[[int], None],
) -> Drain:
    """Run `side` until it has committed all `records` of its input.

    Args:
        commands: starts the side.
        cluster: the broker that holds the input.
        side: the side.
        job: its job; the output topic is created here, and its topics are deleted at the end.
        partitions: the partitions of input and output.
        records: the number of records in the input topic.
        on_progress: called with the number of committed records, for a progress bar.

    Raises:
        RunFailed: the side ended, or makes no progress any more.
    """
    cluster.create(job.output, partitions)
    samples: list[Sample] = []
    group = Group(cluster, job.application, job.input, partitions)
    try:
        with commands.running(side, job) as child:
            committed, news = 0, time.monotonic()
            while committed < records:
                child.check()
                now = time.monotonic()
                seen = group.committed()
                if seen > committed:
                    samples.append(Sample(time.monotonic(), seen, cpu_seconds(child.pid)))
                    committed, news = seen, now
                    on_progress(seen)
                elif now - news > _STALLED:
                    raise child.failure(
                        f"{side} committed {committed} of {records} records, then none for {_STALLED:.0f} s"
                    )
                time.sleep(_POLL)
            memory = peak_memory_mb(child.pid)
        written = cluster.size(job.output, partitions)
        return drain(samples, records, rss_mb=memory, output_records=written)
    finally:
        group.close()
        cluster.delete([job.output, f"{job.application}-"])
