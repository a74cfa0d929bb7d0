"""`python -m millpond.cli`, for environments without the `millpond` script on the path."""

from __future__ import annotations

from . import main

main()
