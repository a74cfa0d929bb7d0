"""Checks for libraries that only some of millpond's extras install."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from millpond.errors import SnapshotError

__all__ = ("require_libraries",)


def require_libraries(names: Iterable[str], purpose: str, extra: str) -> None:
    """Check that libraries are installed, before modules that need them are imported.

    Args:
        names: the names of their packages.
        purpose: the feature that needs them, as the subject of a sentence.
        extra: the extra of millpond that installs them.

    Raises:
        SnapshotError: a library is not installed.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise SnapshotError(
            f"{purpose} needs {' and '.join(missing)}, not installed in this Python: run "
            f"\"pip install 'millpond[{extra}]'\"."
        )
