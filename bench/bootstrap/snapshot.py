"""The snapshot: `millpond snapshot create` for the application of this bench, in a child process.

python -m bench.bootstrap.snapshot bootstrap=… state=… snapshots=…
"""

from __future__ import annotations

import sys

from bench.bootstrap.app import config, topology
from bench.options import from_arguments
from millpond_spark.job import create_snapshot
from millpond_spark.session import session


def main(options: dict[str, str]) -> None:
    """Make a snapshot from the whole changelog, and keep only this version."""
    settings = config(options["bootstrap"], options["state"])
    create_snapshot(topology(), settings, options["snapshots"], session, keep=1, full=True)


if __name__ == "__main__":
    main(from_arguments(sys.argv[1:]))
