"""Loads an application's modules again in the same process, as new processes would load them."""

from __future__ import annotations

import importlib
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

__all__ = ("ApplicationFiles",)

_OWN = ("millpond", "millpond_operator", "millpond_spark")
_INSTALLED = ("site-packages", "dist-packages")


class ApplicationFiles:
    """The files of modules that are neither Python's, nor installed, nor millpond's.

    Those in a directory are loaded again. Others, such as those of a package that is installed in editable form, stay:
    modules of other packages may have objects of theirs.

    Args:
        directory: the application's directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._seen = {path: _version(path) for path in self._modules().values()}

    def forget(self) -> list[Path]:
        """Forget the modules of the directory, so that the next import loads them from their files.

        Returns:
            Files of other modules that were changed since they were loaded. They are not loaded again.
        """
        changed = []
        for name, path in self._modules().items():
            if self._directory in path.parents:
                del sys.modules[name]
            elif path in self._seen and self._seen[path] != _version(path):
                changed.append(path)
        importlib.invalidate_caches()
        return sorted(changed)

    def _modules(self) -> dict[str, Path]:
        found = {}
        for name, module in list(sys.modules.items()):
            path = _file_of(module)
            if path is not None and name.partition(".")[0] not in _OWN and name != "__main__" and _is_source(path):
                found[name] = path
        return found


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _is_source(path: Path) -> bool:
    library = Path(sysconfig.get_path("stdlib")).resolve()
    # Extension modules cannot be loaded twice in a process.
    return path.suffix == ".py" and library not in path.parents and not set(_INSTALLED) & set(path.parts)


def _version(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
