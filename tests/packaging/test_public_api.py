"""The public API changes only on purpose."""

from __future__ import annotations

from tests.packaging.public_api import FILE, text

COMMAND = "python -m tests.packaging.public_api --write"


def test_public_names_and_signatures_are_the_recorded_ones() -> None:
    """Every public name and its signature stand in `public_api.txt`, so that a review shows each change of them."""
    assert text() == FILE.read_text(encoding="utf-8"), f"The public API changed. If it was meant to: {COMMAND}"
