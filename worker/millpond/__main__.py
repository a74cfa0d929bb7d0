"""`python -m millpond`, for environments without the `millpond` script on the path."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()
