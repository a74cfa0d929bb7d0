"""`python -m millpond.broker [SET ...]` downloads jar sets ahead of time; without arguments, those of the broker.

For the broker it also writes a class archive, which makes starts several times faster (`millpond.broker.start_cache`).
"""

from __future__ import annotations

import sys
from datetime import timedelta

from millpond.errors import MillpondError

from . import EmbeddedBroker, jars, java, start_cache


def main(sets: list[str]) -> None:
    """Download jar sets and prepare fast starts of the broker."""
    for name in sets:
        jars.paths(name)
    if "kafka" in sets:
        with start_cache.new_class_archive(java.find_java(), jars.classpath("kafka")) as options:
            if options:
                sys.stderr.write("millpond: writing the class archive for faster broker starts (only once)\n")
                with EmbeddedBroker(jvm_options=options, stop_timeout=timedelta(minutes=2)):
                    pass


def _run() -> None:
    try:
        main(sys.argv[1:] or ["kafka"])
    except MillpondError as error:
        sys.exit(f"millpond: {error}")


if __name__ == "__main__":
    _run()
