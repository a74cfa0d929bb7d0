"""Helm 3, Helm 4 and definitions of other projects for tests of the chart: released programs, or Go modules.

`python -m tests.support.programs.helm` gets them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from millpond.broker.jars import cache_directory
from millpond.errors import MillpondError
from tests.support.programs.go import GoProgram, GoProgramMissing, find_go, run_go

__all__ = ("HELM_3", "HELM_4", "PROGRAMS", "GoProgramMissing", "build", "definitions", "find")

HELM_3 = "helm3"
HELM_4 = "helm4"


_CURE = "get it with `make helm`, which needs Go where get.helm.sh cannot be reached"
PROGRAMS = {
    HELM_3: GoProgram(
        HELM_3,
        "helm.sh/helm/v3/cmd/helm",
        "v3.22.0",
        _CURE,
        variables=tuple(  # without them Helm 3 assumes Kubernetes 1.20
            f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}"
            for package in ("chartutil", "lint/rules")
            for part in ("Major=1", "Minor=35")
        ),
    ),
    HELM_4: GoProgram(HELM_4, "helm.sh/helm/v4/cmd/helm", "v4.3.1", _CURE),
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
        GoProgramMissing: they were not downloaded yet.
    """
    found = [
        _definitions_directory(module) / Path(file).name for module, files in _DEFINITIONS.items() for file in files
    ]
    if missing := [each.name for each in found if not each.exists()]:
        raise GoProgramMissing(f"There is no {missing[0]} for tests: download it with `make helm`, which needs Go.")
    return found


def find(name: str) -> Path:
    """Return the path of one of the programs.

    Args:
        name: HELM_3 or HELM_4.

    Raises:
        GoProgramMissing: it was not built yet.
    """
    return PROGRAMS[name].find()


def build() -> None:
    """Get the programs and the definitions that do not exist yet. Building both takes two cores about four minutes.

    Raises:
        GoProgramMissing: something cannot be downloaded, and Go is not installed, or failed.
    """
    for program in PROGRAMS.values():
        program.build()
    modules = [each for each in _DEFINITIONS if not _definitions_directory(each).exists()]
    for module in modules:
        go = find_go()
        if go is None:
            raise GoProgramMissing(f"Downloading {module} needs Go, which is not installed: install it.")
        _download(go, module)


def _definitions_directory(module: str) -> Path:
    return cache_directory() / "helm" / module.rpartition("/")[2]


def _download(go: str, module: str) -> None:
    directory = _definitions_directory(module)
    part = directory.with_name(f"{directory.name}.{os.getpid()}")
    part.mkdir(parents=True, exist_ok=True)
    told = json.loads(run_go(go, part, "mod", "download", "-json", module, failed=GoProgramMissing))
    for file in _DEFINITIONS[module]:
        shutil.copyfile(Path(told["Dir"]) / file, part / Path(file).name)
    if not directory.exists():
        part.rename(directory)


def main() -> None:
    """Build what is missing, and print the path of each program."""
    try:
        build()
        for name in PROGRAMS:
            print(find(name))
    except MillpondError as error:
        sys.exit(f"millpond: {error}")


if __name__ == "__main__":
    main()
