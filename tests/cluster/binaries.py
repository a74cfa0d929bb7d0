"""The programs of a Kubernetes control plane: found on this machine, downloaded, or built from Go modules, once.

    python -m tests.cluster.binaries

They are looked for in `$MILLPOND_KUBE_BIN`, else in the cache directory, where the command above puts them, and in
`$KIND_HOME/bin` (default `~/.cache/millpond-kind/bin`). Tests that need them are skipped when there are none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.broker.jars import cache_directory
from millpond.errors import MillpondError
from tests.support.programs import releases
from tests.support.programs.go import find_go, one_at_a_time, run_go

__all__ = (
    "API_SERVER",
    "CONTROLLER_MANAGER",
    "ETCD",
    "KUBECTL",
    "BinariesMissing",
    "build",
    "build_directory",
    "find",
    "prepare",
)

KUBERNETES = "v1.34.2"
ETCD_RELEASE = "v3.6.5"

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
KUBECTL = "kubectl"

_STAGING = re.compile(r"^\s*(k8s\.io/[a-z0-9-]+) v0\.0\.0(?: .*)?$", re.MULTILINE)


class BinariesMissing(MillpondError):
    """No Kubernetes is installed here, and none can be built."""


@dataclass(frozen=True)
class _Source:
    """The source of a program."""

    module: str
    version: str
    package: str


_SOURCES = {
    ETCD: _Source("go.etcd.io/etcd/server/v3", ETCD_RELEASE, "go.etcd.io/etcd/server/v3"),
    API_SERVER: _Source("k8s.io/kubernetes", KUBERNETES, f"k8s.io/kubernetes/cmd/{API_SERVER}"),
    CONTROLLER_MANAGER: _Source("k8s.io/kubernetes", KUBERNETES, f"k8s.io/kubernetes/cmd/{CONTROLLER_MANAGER}"),
    KUBECTL: _Source("k8s.io/kubernetes", KUBERNETES, f"k8s.io/kubernetes/cmd/{KUBECTL}"),
}
PROGRAMS = (ETCD, API_SERVER, CONTROLLER_MANAGER)
"""The programs of a control plane."""


def find(names: Sequence[str] = PROGRAMS) -> dict[str, Path]:
    """The programs, all from one directory.

    Raises:
        BinariesMissing: no directory has them all.
    """
    for directory in _directories():
        found = {name: directory / name for name in names}
        if all(os.access(path, os.X_OK) for path in found.values()):
            return found
    raise BinariesMissing(
        f"There is no {', '.join(names)} on this machine: name their directory in MILLPOND_KUBE_BIN, or get "
        "them with `python -m tests.cluster.binaries`, which needs Go where dl.k8s.io and github.com do not answer."
    )


def build_directory() -> Path:
    """The directory of programs that were built here."""
    return cache_directory() / "kubernetes" / KUBERNETES


def build(names: Sequence[str] = PROGRAMS) -> Path:
    """Download or build the programs that are not in the cache yet; return their directory.

    Building all of them takes about ten minutes on two cores the first time.

    Raises:
        BinariesMissing: one cannot be downloaded, and Go is missing or failed.
    """
    directory = build_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with one_at_a_time():
        for name in names:
            if not os.access(directory / name, os.X_OK) and not releases.fetch(name, directory / name):
                _build(name, directory)
    return directory


def prepare() -> None:
    """Get the programs that are not on this machine: those of the control plane, and kubectl.

    Raises:
        BinariesMissing: one cannot be downloaded, and Go is missing or failed.
    """
    for names in (PROGRAMS, (KUBECTL,)):
        try:
            find(names)
        except BinariesMissing:
            build(names)


def _directories() -> Iterator[Path]:
    if given := os.environ.get("MILLPOND_KUBE_BIN"):
        yield Path(given).expanduser()
        return
    yield build_directory()  # first: a program there is whole, while kind's may be in the making
    yield Path(os.environ.get("KIND_HOME") or "~/.cache/millpond-kind").expanduser() / "bin"


def _build(name: str, directory: Path) -> None:
    go = find_go()
    if go is None:
        raise BinariesMissing(
            f"Building {name} needs Go, and there is none: install it, or name the directory of the programs in "
            "MILLPOND_KUBE_BIN."
        )
    began = time.monotonic()
    sys.stderr.write(f"Building {name} with {go} (once, into {directory})\n")
    sys.stderr.flush()
    source = _SOURCES[name]
    module = directory / "src" / source.module.replace("/", "-")
    if not (module / "go.sum").exists():
        shutil.rmtree(module, ignore_errors=True)
        module.mkdir(parents=True)
        (module / "go.mod").write_text(_go_mod(go, source, directory))
        _go(go, module, "mod", "tidy")
    part = directory / f".{name}.part"
    _go(go, module, "build", "-trimpath", "-ldflags", _link_flags(source), "-o", str(part), source.package)
    part.rename(directory / name)
    sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")


def _go_mod(go: str, source: _Source, directory: Path) -> str:
    """A module that requires all programs of another one.

    Programs whose own module replaces parts of it by local directories cannot be installed by name; here those parts
    are the
    published ones.
    """
    packages = sorted({each.package for each in _SOURCES.values() if each.module == source.module})
    told = json.loads(_go(go, directory, "mod", "download", "-json", f"{source.module}@{source.version}"))
    original = Path(told["GoMod"]).read_text()
    language = re.search(r"^go (\S+)$", original, re.MULTILINE)
    assert language is not None
    lines = [
        "module millpond.test/programs",
        f"go {max(language[1], '1.24.0', key=_numbers)}",  # the first Go with `tool`
        f"require {source.module} {source.version}",
        *(f"tool {package}" for package in packages),
    ]
    if source.module == "k8s.io/kubernetes":
        parts = sorted(set(_STAGING.findall(original)))
        lines += [f"replace {part} => {part} v0.{source.version.removeprefix('v1.')}" for part in parts]
    return "\n".join(lines) + "\n"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _link_flags(source: _Source) -> str:
    if source.version != KUBERNETES:
        return "-s -w"
    minor = KUBERNETES.split(".")[1]
    told = {
        "gitVersion": KUBERNETES,
        "gitMajor": "1",
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(
        ["-s -w", *(f"-X {package}.{field}={value}" for package in packages for field, value in told.items())]
    )


def _go(go: str, where: Path, *arguments: str) -> str:
    return run_go(go, where, *arguments, failed=BinariesMissing, GOFLAGS="-mod=mod")


def main() -> None:
    """Print where the programs are; get them if they are missing."""
    try:
        prepare()
        found = find()
    except MillpondError as error:
        sys.exit(f"millpond: {error}")
    print(next(iter(found.values())).parent)


if __name__ == "__main__":
    main()
