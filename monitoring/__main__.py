"""Write dashboards, rules and the tables of docs/monitoring.md, or check them: `python -m monitoring [--check]`."""

from __future__ import annotations

import argparse
import sys

from monitoring.files import stale, write


def main() -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m monitoring", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not up to date")
    given = parser.parse_args()
    outdated = stale()
    if given.check:
        for path in outdated:
            sys.stderr.write(f"{path} is not what monitoring/ makes: run `make dashboards`.\n")
        return 1 if outdated else 0
    write()
    sys.stdout.write("".join(f"{path}\n" for path in outdated))
    return 0


if __name__ == "__main__":
    sys.exit(main())
