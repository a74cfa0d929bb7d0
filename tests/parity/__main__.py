"""Write the pages about what there is of Kafka Streams.

python -m tests.parity --write                                       # after a change of the tests, or of an operator
python -m tests.parity --run build/differential/coverage.json        # keep the counts of a run, and write
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.parity import coverage
from tests.parity.pages import PAGES


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the pages")
    parser.add_argument("--run", type=Path, help="first keep the counts of this run of tests.differential")
    given = parser.parse_args()
    if given.run is not None:
        coverage.keep(given.run)
    if given.write or given.run is not None:
        for page, make in PAGES.items():
            page.write_text(make(), encoding="utf-8")
    else:
        parser.print_help()


if __name__ == "__main__":
    main()
