"""Helm 3, Helm 4 and definitions of other projects for tests of the chart, made once from Go modules.

`python -m tests.support.helm` builds them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from millpond.broker.jars import cache_directory
from millpond.errors import MillpondError
from tests.support.go import find_go, run_go

__all__ = ("HELM_3", "HELM_4", "HelmMissing", "build", "definitions", "find")

HELM_3 = "helm3"
HELM_4 = "helm4"


class HelmMissing(MillpondError):
    """A program for tests of the chart is not installed, and cannot be built."""


@dataclass(frozen=True)
class _Source:
    package: str
    release: str
    program: str
    variables: tuple[str, ...] = ()
    """Variables of the program that its own build sets: without them Helm 3 assumes Kubernetes 1.20."""

    @property
    def directory(self) -> Path:
        """The directory that has this release of the program."""
        return cache_directory() / "helm" / f"{self.program}-{self.release}"


_SOURCES = {
    HELM_3: _Source(
        "helm.sh/helm/v3/cmd/helm",
        "v3.22.0",
        "helm",
        tuple(
            f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}"
            for package in ("chartutil", "lint/rules")
            for part in ("Major=1", "Minor=35")
        ),
    ),
    HELM_4: _Source("helm.sh/helm/v4/cmd/helm", "v4.3.1", "helm"),
}


_DEFINITIONS = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    "github.com/cert-manager/cert-manager@v1.21.2": ("deploy/crds/cert-manager.io_certificates.yaml",),
}
"""Files of Go modules."""


def definitions() -> list[Path]:
    """Return the custom resource definitions of other projects that the chart uses.

    Raises:
        HelmMissing: they were not downloaded yet.
    """
    found = [
        _definitions_directory(module) / Path(file).name for module, files in _DEFINITIONS.items() for file in files
    ]
    if missing := [each.name for each in found if not each.exists()]:
        raise HelmMissing(f"There is no {missing[0]} for tests: download it with `make helm`, which needs Go.")
    return found


def find(name: str) -> Path:
    """Return the path of one of the programs.

    Args:
        name: HELM_3 or HELM_4.

    Raises:
        HelmMissing: it was not built yet.
    """
    source = _SOURCES[name]
    built = source.directory / source.program
    if os.access(built, os.X_OK):
        return built
    raise HelmMissing(f"There is no {name} {source.release} for tests: build it with `make helm`, which needs Go.")


def build() -> None:
    """Build the programs and download the definitions that do not exist yet. Both take two cores about four minutes.

    Raises:
        HelmMissing: Go is not installed, or failed.
    """
    missing = [name for name, source in _SOURCES.items() if not os.access(source.directory / source.program, os.X_OK)]
    modules = [each for each in _DEFINITIONS if not _definitions_directory(each).exists()]
    if not missing and not modules:
        return
    go = find_go()
    if go is None:
        raise HelmMissing("Building Helm for tests needs Go, which is not installed: install Go 1.24 or later.")
    for name in missing:
        directory = _SOURCES[name].directory
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.access(directory / _SOURCES[name].program, os.X_OK):
                _install(go, name, directory)

    for module in modules:
        _download(go, module)


def _definitions_directory(module: str) -> Path:
    return cache_directory() / "helm" / module.rpartition("/")[2]


def _download(go: str, module: str) -> None:
    directory = _definitions_directory(module)
    part = directory.with_name(f"{directory.name}.{os.getpid()}")
    part.mkdir(parents=True, exist_ok=True)
    told = json.loads(run_go(go, part, "mod", "download", "-json", module, failed=HelmMissing))
    for file in _DEFINITIONS[module]:
        shutil.copyfile(Path(told["Dir"]) / file, part / Path(file).name)
    if not directory.exists():
        part.rename(directory)


def _install(go: str, name: str, directory: Path) -> None:
    began = time.monotonic()
    source = _SOURCES[name]
    sys.stderr.write(f"Building {name} {source.release} with {go} (once, into {directory})\n")
    part = directory / "part"  # an interrupted build leaves no incomplete program under the final name
    run_go(
        go,
        directory,
        "install",
        "-trimpath",
        "-ldflags",
        " ".join(["-s -w", *(f"-X {variable}" for variable in source.variables)]),
        f"{source.package}@{source.release}",
        failed=HelmMissing,
        GOBIN=str(part),
    )
    (part / source.program).rename(directory / source.program)
    part.rmdir()
    sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")


def main() -> None:
    """Build what is missing, and print the path of each program."""
    try:
        build()
        for name in _SOURCES:
            print(find(name))
    except MillpondError as error:
        sys.exit(f"millpond: {error}")


if __name__ == "__main__":
    main()
