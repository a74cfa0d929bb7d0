"""Write the dashboards and rules of the chart, or check that they are up to date: `python -m monitoring [--check]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from monitoring.files import FOLDER, stale, write

_ROOT = Path(__file__).parents[1]


def main() -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m monitoring", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not up to date")
    given = parser.parse_args()
    outdated = stale(_ROOT)
    if given.check:
        for path in outdated:
            sys.stderr.write(f"{path} is not what monitoring/ makes: run `make dashboards`.\n")
        return 1 if outdated else 0
    write(_ROOT)
    sys.stdout.write(f"{FOLDER}: {len(outdated)} files changed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
