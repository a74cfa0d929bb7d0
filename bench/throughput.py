"""One throughput run: start a side on topics that are full already and watch it drain them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from bench.cluster import Cluster, Group
from bench.processes import cpu_seconds, peak_memory_mb
from bench.progress import Drain, Sample, drain
from bench.sides import Commands, Job, SideName

_LOOK_EVERY: Final = 0.02  # seconds between two looks: about a hundredth of the shortest run's measured time
_STALLED: Final = 90.0  # seconds without a single new commit


def measure(
    commands: Commands,
    cluster: Cluster,
    side: SideName,
    job: Job,
    partitions: int,
    records: int,
    advanced: Callable[[int], None],
) -> Drain:
    """Run `side` until it has committed all `records` of its input.

    Args:
        commands: how to start it.
        cluster: the broker that holds the input.
        side: which one.
        job: what it does; its output topic is created here, and its topics are deleted when it is done.
        partitions: of the input and of the output.
        records: in the input topic.
        advanced: called with the number of records committed so far, for a progress bar.

    Raises:
        RunFailed: when the side ends or makes no progress any more.
    """
    cluster.create(job.output, partitions)
    samples: list[Sample] = []
    group = Group(cluster.bootstrap, job.application, job.input, partitions)
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
                    advanced(seen)
                elif now - news > _STALLED:
                    raise child.failure(
                        f"{side} committed {committed} of {records} records and then nothing for {_STALLED:.0f} s"
                    )
                time.sleep(_LOOK_EVERY)
            memory = peak_memory_mb(child.pid)
        written = cluster.size(job.output, partitions)
        return drain(samples, records, rss_mb=memory, output_records=written)
    finally:
        group.close()
        cluster.delete([job.output, f"{job.application}-"])
