"""The millpond side: one worker that prints a line when it runs.

python -m bench.bootstrap.worker bootstrap=… state=… [snapshots=…]
"""

from __future__ import annotations

import logging
import signal
import sys

import millpond as mp
from bench.bootstrap.app import config, topology
from bench.bootstrap.measuring import READY
from bench.options import from_arguments
from millpond.runtime.states import WorkerState
from millpond.runtime.worker.memory.malloc import keep_few_arenas


class _Tell(mp.WorkerListener):
    def state_changed(self, state: WorkerState) -> None:
        if state is WorkerState.RUNNING:
            print(READY, flush=True)


def main(options: dict[str, str]) -> None:
    """Run until SIGTERM."""
    keep_few_arenas()  # like `millpond run`
    logging.basicConfig(level=logging.INFO)
    worker = mp.Worker(topology(), config(options["bootstrap"], options["state"], options.get("snapshots")), _Tell())
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


if __name__ == "__main__":
    main(from_arguments(sys.argv[1:]))
