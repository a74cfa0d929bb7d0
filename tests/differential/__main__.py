"""Compare millpond with Kafka Streams in generated cases: `python -m tests.differential --cases 1000 --seed 1`."""

from __future__ import annotations

import sys

from tests.differential.command import main

if __name__ == "__main__":  # processes of the run import this module
    sys.exit(main())
