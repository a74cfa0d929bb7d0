"""The Kubernetes cluster of a run: the one of `KUBECONFIG`, one that kind makes, or one whose images are built here.

A cluster that is made here belongs to the run and is removed at its end. Clusters of other names are not touched.
"""

from __future__ import annotations

import enum
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.programs.go import find_go

__all__ = ("Cluster", "Machine", "Way", "choose")

_ROOT = Path(__file__).parents[2]
_SCRIPT = _ROOT / ".ci" / "cluster"
_BUILDING = _ROOT.parent / "shared" / "kind" / "up.sh"
#: An image that every registry of kind's images has, and none is without a version. Only its description is asked for.
_PROBE = "kindest/node:v1.34.0"
_PROBE_S = 20.0
_PREPARE_S = 3000.0
_UP_S = 1400.0
_DOWN_S = 150.0


class Way(enum.Enum):
    """The way to a cluster."""

    GIVEN = "the cluster of KUBECONFIG"
    KIND = "a cluster of kind, from its own node image"
    BUILT = "a cluster of kind, from images that are built here"


@dataclass(frozen=True)
class Machine:
    """What decides about the way to a cluster.

    Attributes:
        kubeconfig: whether `KUBECONFIG` names a cluster.
        kind: whether there are kind and a docker that runs.
        registry: whether docker reaches the registry of kind's node images.
        scripts: whether there are scripts that build these images from packages.
        root: whether this process may start docker.
        go: whether Go is there.
    """

    kubeconfig: bool
    kind: bool
    registry: bool
    scripts: bool
    root: bool
    go: bool

    @classmethod
    def this(cls) -> Machine:
        """Return what this machine has."""
        kind = shutil.which("kind") is not None and _quiet("docker", "version")
        return cls(
            kubeconfig=bool(os.environ.get("KUBECONFIG")),
            kind=kind,
            registry=kind and _quiet("docker", "manifest", "inspect", os.environ.get("KIND_NODE_IMAGE") or _PROBE),
            scripts=os.access(_BUILDING, os.X_OK),
            root=os.geteuid() == 0,
            go=find_go() is not None,
        )


def choose(machine: Machine) -> Way | str:
    """Return the way to a cluster, or one sentence why there is none."""
    if machine.kubeconfig:
        return Way.GIVEN
    if machine.registry:
        return Way.KIND
    if machine.scripts and machine.root and machine.go:
        return Way.BUILT
    if machine.scripts:
        return f"building a cluster takes {'Go' if machine.root else 'root, which starts docker'}"
    if machine.kind:
        return "kind's node image cannot be pulled: set KUBECONFIG to a cluster"
    return "there is no cluster: set KUBECONFIG to one, or install kind and start docker"


class Cluster:
    """The cluster of a run, prepared and started in the background.

    Args:
        logs: the directory of the logs of these steps.
        way: the way to it, or why there is none.
    """

    def __init__(self, logs: Path, way: Way | str) -> None:
        self._logs = logs
        self._way = way
        self._name = f"ci-{os.getpid()}"
        self._kubeconfig = logs / "kubeconfig"
        self._wanted = threading.Event()
        self._running: subprocess.Popen[bytes] | None = None
        self._ending = False
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._provide, name="cluster", daemon=True)

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        if self._way is Way.BUILT:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.ident is None:
            return
        self._ending = True
        self._wanted.set()
        while self._thread.is_alive():
            if self._running is not None and self._running.poll() is None:
                os.killpg(self._running.pid, signal.SIGTERM)
            self._thread.join(1.0)
        if self._kubeconfig.exists():
            self._step("down", self._name, limit_s=_DOWN_S)

    def bring_up(self) -> None:
        """Start the nodes as soon as their images are there. Other work can go on meanwhile."""
        self._wanted.set()

    def environment(self) -> Mapping[str, str] | str:
        """Return the variables for `make e2e` once the cluster runs, or one sentence why there is none."""
        if isinstance(self._way, str):
            return self._way
        if self._way is not Way.BUILT:
            return {}
        self._wanted.set()
        self._thread.join()
        if self._trouble is not None:
            return self._trouble
        return {**self._variables(), "E2E_BUILT": "1"}

    def _provide(self) -> None:
        self._kubeconfig.unlink(missing_ok=True)
        if not self._step("prepare", limit_s=_PREPARE_S):
            self._trouble = f"the images of a cluster cannot be built (see the end of {self._log('prepare')})"
            return
        self._wanted.wait()
        if not self._ending and not self._step("up", self._name, limit_s=_UP_S):
            self._trouble = f"no cluster comes up (see the end of {self._log('up')})"

    def _step(self, step: str, *arguments: str, limit_s: float) -> bool:
        with self._log(step).open("wb") as log:
            self._running = subprocess.Popen(
                [str(_SCRIPT), step, *arguments],
                env={**os.environ, **self._variables()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                return self._running.wait(limit_s) == 0
            except subprocess.TimeoutExpired:
                os.killpg(self._running.pid, signal.SIGKILL)
                self._running.wait()
                return False

    def _log(self, step: str) -> Path:
        return self._logs / f"cluster-{step}.log"

    def _variables(self) -> dict[str, str]:
        # Inside a build, packages are reached by the network of this machine.
        home = Path(os.environ.get("KIND_HOME") or "~/.cache/millpond-kind").expanduser()
        go = find_go()
        added = [str(home / "bin"), str(Path("~/go/bin").expanduser()), *([str(Path(go).parent)] if go else [])]
        return {
            "KUBECONFIG": str(self._kubeconfig),
            "KIND_HOME": str(home),
            "E2E_BUILD_OPTIONS": "--network host",
            "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *added]),
        }


def _quiet(*command: str) -> bool:
    """Return whether a command succeeds in time."""
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_PROBE_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
