"""`python -m millpond.cli`, where the `millpond` script is not on the path."""

from __future__ import annotations

from . import main

main()
