"""Build the wheel and the sdist of the checkout as it is: `make dist`.

`make release` builds the same of a commit, twice, with all other parts of a release.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from millpond.errors import MillpondError

from .packages import packages
from .sources import ROOT, working_tree

_OUTPUT = ROOT / "dist"


@click.command(help=__doc__)
@click.option("--output", type=click.Path(path_type=Path), default=_OUTPUT, help="Directory for both. Default: dist.")
def main(output: Path) -> None:
    """Build both and print their paths."""
    try:
        with tempfile.TemporaryDirectory(prefix="millpond-dist-") as scratch:
            built = packages(working_tree(Path(scratch) / "sources"), output)
    except MillpondError as error:
        sys.exit(f"millpond: {error}")
    for path in built:
        click.echo(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    main()
