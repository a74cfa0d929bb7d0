"""The millpond side of the bench: one worker; all other settings have their defaults.

python -m bench.worker workload=count application=… bootstrap=… state=… guarantee=exactly_once commit_ms=100 input=… …
"""

from __future__ import annotations

import logging
import signal
import sys
from datetime import timedelta

import millpond as mp
from bench.apps import topology
from bench.options import from_arguments
from millpond.runtime.worker.memory.malloc import keep_few_arenas


def main(options: dict[str, str]) -> None:
    """Run until SIGTERM."""
    keep_few_arenas()  # like `millpond run`
    logging.basicConfig(level=logging.INFO)
    config = mp.Config.of(
        application_id=options["application"],
        bootstrap_servers=options["bootstrap"],
        state_dir=options["state"],
        processing_guarantee=options["guarantee"],
        commit_interval=timedelta(milliseconds=int(options["commit_ms"])),
    )
    worker = mp.Worker(topology(options), config)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


if __name__ == "__main__":
    main(from_arguments(sys.argv[1:]))
