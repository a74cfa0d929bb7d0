"""Settings of an application, from the view of its processors."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ("with_prefix",)


def with_prefix(settings: Mapping[str, object], prefix: str) -> dict[str, object]:
    """Return the settings whose names begin with a prefix, by their names without it."""
    return {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
