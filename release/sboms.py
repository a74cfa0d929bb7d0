"""Software bills of materials, by syft, in CycloneDX's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tests.support.programs.go import GoProgram

from .commands import run
from .failures import ReleaseFailed
from .images import Image
from .sources import Sources

__all__ = ("SYFT", "of_images", "of_packages")

SYFT = GoProgram(
    "syft", "github.com/anchore/syft/cmd/syft", "v1.18.1", "install Go, which builds it, or syft itself", on_path=True
)


def of_images(syft: Path, images: Iterable[Image], output: Path) -> list[Path]:
    """Write the SBOM of each image, with its Debian packages, Python packages and jars.

    Raises:
        ReleaseFailed: syft failed, or found no Python packages.
    """
    return [
        _scan(syft, f"docker:{image.reference}", output / f"{image.name}-image.cdx.json", needed="pkg:pypi/millpond")
        for image in images
    ]


def of_packages(syft: Path, sources: Sources, output: Path) -> list[Path]:
    """Write the SBOM of what the locks pin: one document for the worker, the operator and the Spark job.

    Raises:
        ReleaseFailed: syft failed, or found no Python packages.
    """
    written = []
    for name in ("worker", "operator", "spark"):
        lock = sources.directory / f"requirements-{name}.lock"
        copy = sources.directory.parent / f"sbom-{name}" / "requirements.txt"  # the name by which syft knows the format
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(lock.read_text())
        written.append(_scan(syft, f"file:{copy}", output / f"{name}-packages.cdx.json", needed="pkg:pypi/aiohttp"))
    return written


def _scan(syft: Path, source: str, path: Path, needed: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    run(syft, "scan", "--quiet", source, "--output", f"cyclonedx-json={path}")
    document = json.loads(path.read_text())
    if not any((each.get("purl") or "").startswith(needed) for each in document.get("components", [])):
        raise ReleaseFailed(f"The SBOM {path.name} has no {needed}: syft did not understand {source}.")
    for volatile in ("serialNumber",):
        document.pop(volatile, None)
    document.get("metadata", {}).pop("timestamp", None)
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return path
