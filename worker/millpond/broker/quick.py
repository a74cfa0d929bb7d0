"""A broker that is up as soon as possible, and tells what it waits for: for `millpond dev` and the demo."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from . import jars, java, start_cache
from .embedded import EmbeddedBroker

__all__ = ("QUICK", "quick_broker")

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options with which Java starts with half of the CPU time: without the second compiler and the parallel collector.

They win later, and for more records than a person at one machine sends."""
_ARCHIVE_TIMEOUT = timedelta(minutes=2)


@contextlib.contextmanager
def quick_broker(
    data_dir: str | os.PathLike[str], tell: Callable[[str], None], *, port: int = 0
) -> Iterator[EmbeddedBroker]:
    """Run a broker while the block runs.

    The first one on a machine writes an archive of its classes when it stops, with which later ones start in half of
    the time (see `start_cache`).

    Args:
        data_dir: directory of topics, settings and log.
        tell: gets what the caller waits for, as a part of a sentence such as `starting Kafka`.
        port: port for clients; 0 for the one that the last broker of the directory had, or a free one.

    Raises:
        BrokerError: the broker did not start.
        JarError: a jar is missing and cannot be downloaded.
        JavaNotFound: no suitable Java is installed.
    """
    launcher = java.find_java()
    classpath = jars.classpath("kafka")  # shows the progress of downloads itself
    began = time.monotonic()
    with start_cache.new_class_archive(launcher, classpath) as options:
        broker = EmbeddedBroker(
            data_dir,
            port=port,
            jvm_options=(*QUICK, *options),
            stop_timeout=_ARCHIVE_TIMEOUT if options else timedelta(seconds=20),
            on_step=tell,
        )
        with broker:
            tell(f"Kafka is up after {time.monotonic() - began:.1f} s at {broker.bootstrap_servers}")
            yield broker
            if options:
                tell("stopping Kafka, and writing an archive of its classes for faster starts (only once)")
