"""The wheel and the sdist."""

from __future__ import annotations

import sys
from pathlib import Path

from .archives import normalised, normalised_wheel
from .commands import run
from .failures import ReleaseFailed
from .sources import Sources

__all__ = ("packages",)

_BUILD = "from setuptools import build_meta; import sys; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def packages(sources: Sources, output: Path) -> list[Path]:
    """Build the wheel and the sdist into a directory, and return their paths.

    Raises:
        ReleaseFailed: setuptools failed.
    """
    output.mkdir(parents=True, exist_ok=True)
    environment = {"SOURCE_DATE_EPOCH": str(sources.epoch), "PYTHONHASHSEED": "0"}
    for hook in ("build_wheel", "build_sdist"):
        run(sys.executable, "-c", _BUILD, hook, output.resolve(), where=sources.directory, environment=environment)
    built = [output / f"millpond-{sources.version}-py3-none-any.whl", output / f"millpond-{sources.version}.tar.gz"]
    for each in built:
        if not each.exists():
            raise ReleaseFailed(
                f"setuptools did not make {each.name}: it made {sorted(p.name for p in output.iterdir())}."
            )
    normalised_wheel(built[0])
    normalised(built[1], sources.epoch)
    return built
