"""A real S3 server for tests: versitygw, as released, or built once from its Go module, or installed on this machine.

`python -m tests.support.programs.versitygw` gets it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millpond.errors import MillpondError
from tests.support.programs.go import GoProgram, GoProgramMissing

__all__ = ("PROGRAM", "GoProgramMissing", "build", "find")

PROGRAM = GoProgram(
    "versitygw",
    "github.com/versity/versitygw/cmd/versitygw",
    "v1.8.0",
    "get it with `make versitygw`, which needs Go where github.com cannot be reached, or put versitygw on PATH",
    on_path=True,
)


def find() -> Path:
    """Return the program that was built, else the one on PATH.

    Raises:
        GoProgramMissing: there is neither.
    """
    return PROGRAM.find()


def build() -> Path:
    """Get the program unless it exists, and return its path. Building it takes one core about three minutes.

    Raises:
        GoProgramMissing: it cannot be downloaded, and Go is not installed, or failed.
    """
    return PROGRAM.build()


def main() -> None:
    """Print the path of the program; get it if it does not exist."""
    try:
        try:
            found = find()
        except GoProgramMissing:
            found = build()
    except MillpondError as error:
        sys.exit(f"millpond: {error}")
    print(found)


if __name__ == "__main__":
    main()
