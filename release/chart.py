"""The Helm chart, and the manifests for those who do without Helm."""

from __future__ import annotations

from pathlib import Path

from .archives import normalised
from .commands import run
from .failures import ReleaseFailed
from .sources import Sources

__all__ = ("chart", "manifests")


def chart(helm: Path, sources: Sources, output: Path) -> list[Path]:
    """Package the chart with the version of the release, and return the path of the archive.

    Raises:
        ReleaseFailed: Helm failed.
    """
    output.mkdir(parents=True, exist_ok=True)
    version = sources.version
    source = sources.directory / "helm" / "millpond"
    run(helm, "package", source, "--version", version, "--app-version", version, "--destination", output)
    archive = output / f"millpond-{version}.tgz"
    if not archive.exists():
        raise ReleaseFailed(f"Helm did not make {archive.name}.")
    normalised(archive, sources.epoch)
    return [archive]


def manifests(helm: Path, packaged: Path, sources: Sources, output: Path) -> list[Path]:
    """Write `crds.yaml` and `millpond.yaml`, for `kubectl apply --server-side`, and return their paths."""
    definitions = sorted(sources.directory.glob("operator/millpond_operator/crds/*.yaml"))
    crds, operator = output / "crds.yaml", output / "millpond.yaml"
    crds.write_text("---\n".join(path.read_text() for path in definitions))
    operator.write_text(
        run(
            helm,
            "template",
            "millpond",
            packaged,
            "--namespace",
            "millpond-system",
            "--set",
            "crds.install=false",
            "--no-hooks",
        )
    )
    return [crds, operator]
