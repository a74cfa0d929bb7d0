"""Build a release into dist/, build it again, compare, and try each part in a clean environment.

`python -m release --without images` leaves the images out where there is no docker.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from millpond.errors import MillpondError
from tests.support.programs.helm import HELM_3, HELM_4
from tests.support.programs.helm import build as build_helm
from tests.support.programs.helm import find as find_helm

from . import chart as charts
from . import images as containers
from . import sboms, trials
from .commands import program
from .failures import ReleaseFailed
from .output import SUMS, emptied
from .packages import packages
from .sources import ROOT, committed

_PARTS = ("packages", "chart", "images")
_OUTPUT = ROOT / "dist"
_REPRODUCED = ("worker", "operator")
#: Debian's packages in the Spark image are the newest of the day, so it is only built once.


class _Release:
    """The release under way.

    Args:
        output: the directory for the result.
        scratch: a directory for everything else.
        console: where progress goes.
    """

    def __init__(self, output: Path, scratch: Path, console: Console) -> None:
        self.output = output
        self._scratch = scratch
        self._console = console
        self._rows: list[tuple[str, str, str]] = []
        self.sources = committed(scratch / "first")
        self._again = committed(scratch / "second")

    def packages(self) -> None:
        with self._step("wheel and sdist") as step:
            built = packages(self.sources, self.output)
            self._same(built, packages(self._again, self._scratch / "packages"))
            step.append("twice the same")
        with self._step("wheel in a clean environment") as step:
            step.append(trials.try_wheel(built[0], self.sources, self._scratch))
        with self._step("wheel from the sdist") as step:
            step.append(trials.try_sdist(built[1], built[0], self.sources, self._scratch))
        with self._step("SBOMs of the locked packages") as step:
            step.append(_count(sboms.of_packages(sboms.SYFT.build(), self.sources, self.output / "sbom")))

    def chart(self) -> None:
        with self._step("chart and manifests") as step:
            build_helm()
            helms = [find_helm(HELM_3), find_helm(HELM_4)]
            built = charts.chart(helms[0], self.sources, self.output)
            self._same(built, charts.chart(helms[1], self._again, self._scratch / "chart"))
            charts.manifests(helms[0], built[0], self.sources, self.output)
            step.append("the same by both versions of Helm")
        with self._step("chart in a clean environment") as step:
            step.append(trials.try_chart(helms, built[0], self._scratch))

    def images(self, registry: str, options: list[str]) -> None:
        docker = program("docker", "install it, or leave the images out with --without images")
        with self._step("images") as step:
            built = containers.build(docker, self.sources, containers.IMAGES, registry, options)
            step.append(", ".join(each.reference for each in built))
        with self._step("images once more") as step:
            again = containers.build(docker, self._again, _REPRODUCED, f"{registry}/again", options)
            first = [each for each in built if each.name in _REPRODUCED]
            if changed := containers.differing(first, again):
                raise ReleaseFailed(f"Built again, these images have other layers: {', '.join(changed)}.")
            step.append(f"the same layers: {', '.join(_REPRODUCED)}")
        with self._step("images in a clean environment") as step:
            step.append(trials.try_images(docker, built, self.sources.version))
        with self._step("SBOMs of the images") as step:
            step.append(_count(sboms.of_images(sboms.SYFT.build(), built, self.output / "sbom")))
        (self.output / "images.json").write_text(json.dumps([asdict(each) for each in built], indent=1) + "\n")

    def finish(self) -> Table:
        """Write the checksums, and return what was done as a table."""
        files = sorted(path for path in self.output.rglob("*") if path.is_file())
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(self.output)}" for path in files]
        (self.output / SUMS).write_text("\n".join(lines) + "\n")
        table = Table(title=f"millpond {self.sources.version}, commit {self.sources.commit[:12]}", title_justify="left")
        for heading in ("part", "time", "result"):
            table.add_column(heading, overflow="fold")
        for row in self._rows:
            table.add_row(*row)
        return table

    @contextmanager
    def _step(self, name: str) -> Iterator[list[str]]:
        results: list[str] = []
        began = time.monotonic()
        with self._console.status(f"{name} ..."):
            yield results
        took = f"{time.monotonic() - began:.0f} s"
        self._rows.append((name, took, "; ".join(results)))
        self._console.print(f"{took:>6}  {name}: {'; '.join(results)}", highlight=False, soft_wrap=True)

    @staticmethod
    def _same(first: list[Path], second: list[Path]) -> None:
        for one, other in zip(first, second, strict=True):
            if one.read_bytes() != other.read_bytes():
                raise ReleaseFailed(f"{one.name} differs when it is built again: compare {one} and {other}.")


def _count(paths: list[Path]) -> str:
    found = sum(len(json.loads(path.read_text())["components"]) for path in paths)
    return f"{len(paths)} documents, {found:,} components"


@click.command(help=__doc__)
@click.option("--output", type=click.Path(path_type=Path), default=_OUTPUT, help="Directory for the result.")
@click.option("--registry", default="millpond", help="Registry and repository that the images' names begin with.")
@click.option("--without", multiple=True, type=click.Choice(_PARTS), help="Leave a part out; may be repeated.")
def main(output: Path, registry: str, without: tuple[str, ...]) -> None:
    """Build a release."""
    console = Console(stderr=True)
    options = shlex.split(os.environ.get("BUILD_OPTIONS", ""))
    try:
        emptied(output, default=_OUTPUT)
        with tempfile.TemporaryDirectory(prefix="millpond-release-") as scratch:
            release = _Release(output, Path(scratch), console)
            for part in _PARTS:
                if part in without:
                    continue
                if part == "images":
                    release.images(registry, options)
                else:
                    getattr(release, part)()
            console.print(release.finish())
    except MillpondError as error:
        sys.exit(f"millpond: {error}")


if __name__ == "__main__":
    main()
