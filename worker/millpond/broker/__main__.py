"""`python -m millpond.broker [SET ...]` prepares what is slow: it fetches jars, those of the broker without arguments.

It also writes the archive of classes with which brokers start several times faster (`millpond.broker.start_cache`).
"""

from __future__ import annotations

import sys
from datetime import timedelta

from millpond.errors import MillpondError

from . import EmbeddedBroker, jars, java, start_cache


def main(sets: list[str]) -> None:
    """Prepare jar sets."""
    for name in sets:
        jars.paths(name)
    if "kafka" in sets:
        with start_cache.new_class_archive(java.find_java(), jars.classpath("kafka")) as options:
            if options:
                sys.stderr.write("millpond: preparing faster starts of Kafka, once\n")
                with EmbeddedBroker(jvm_options=options, stop_timeout=timedelta(minutes=2)):
                    pass


if __name__ == "__main__":
    try:
        main(sys.argv[1:] or ["kafka"])
    except MillpondError as error:
        sys.exit(f"millpond: {error}")
