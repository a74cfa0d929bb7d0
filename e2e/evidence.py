"""The evidence of a failed test in `build/e2e/`: logs of all pods, also deleted ones, objects and events."""

from __future__ import annotations

import contextlib
import re
import subprocess
import urllib.error
from pathlib import Path

from e2e.beside import Beside
from e2e.cluster import Cluster
from e2e.commands import WORK, CommandFailed, background, end, found, run

__all__ = ("Logs", "dump", "dump_nodes")

_LOOK_EVERY_S = 1.0
_KINDS = "sapp,sasg,sboot,pods,statefulsets,controllerrevisions,services,pdb,pvc,jobs,deployments"


class Logs(Beside):
    """Follows the logs of all pods in some namespaces, from each container's first line, during the block."""

    def __init__(self, cluster: Cluster, namespaces: tuple[str, ...]) -> None:
        super().__init__()
        self._cluster = cluster
        self._namespaces = namespaces
        self._followers: dict[str, subprocess.Popen[bytes]] = {}

    def _end(self) -> None:
        for each in self._followers.values():
            end(each)

    def _run(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            for namespace in self._namespaces:
                with contextlib.suppress(OSError, urllib.error.URLError):
                    self._look(namespace)

    def _look(self, namespace: str) -> None:
        for pod in self._cluster.objects("pods", namespace):
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            for status in pod.get("status", {}).get("containerStatuses", []):
                running = status.get("state", {}).get("running")
                container = status.get("containerID", "").rsplit("/", 1)[-1][:12]
                follower = self._followers.get(f"{uid} {container}")
                # A follower ends early with its node or with the API server.
                if not running or not container or (follower is not None and follower.poll() is None):
                    continue
                begun = re.sub(r"\D", "", running["startedAt"])[8:14]
                log = WORK / "logs" / namespace / f"{name}-{begun}-{container}.log"
                self._followers[f"{uid} {container}"] = background(
                    *self._cluster.command, "-n", namespace, "logs", "--follow", "--timestamps", name,
                    f"--container={status['name']}", *(["--since=2m"] if follower else []), log=log,
                )  # fmt: skip


def dump(cluster: Cluster, namespaces: tuple[str, ...], directory: Path) -> None:
    """Save all objects, events and logs."""
    directory.mkdir(parents=True, exist_ok=True)
    for namespace in namespaces:
        if cluster.get("namespaces", None, namespace) is None:
            continue
        looks = {
            "objects.txt": ("get", _KINDS, "-o", "wide"),
            "objects.yaml": ("get", "sapp,sasg,pods,statefulsets", "-o", "yaml"),
            "describe.txt": ("describe", "sapp,pods"),
            "events.txt": ("get", "events", "--sort-by=.lastTimestamp"),
        }
        for name, arguments in looks.items():
            try:
                told = cluster.kubectl("-n", namespace, *arguments, timeout_s=60)
            except CommandFailed as error:
                told = str(error)
            (directory / f"{namespace}-{name}").write_text(told)
        _logs(cluster, namespace, directory)


def dump_nodes(names: tuple[str, ...], directory: Path) -> None:
    """Save the state of nodes that are containers of docker: what docker says, and the last lines of their services."""
    directory.mkdir(parents=True, exist_ok=True)
    docker = found("docker")
    assert docker is not None
    journal = ("exec", "{}", "journalctl", "--no-pager", "--lines=500", "--unit=kubelet", "--unit=containerd")
    looks = {
        "state.json": ("inspect", "--format={{json .State}}", "{}"),
        "console.txt": ("logs", "--tail=200", "{}"),
        "journal.txt": journal,
        "disks.txt": ("exec", "{}", "df", "-h"),
    }
    for node in names:
        for name, arguments in looks.items():
            try:
                told = run(docker, *(each.format(node) if each == "{}" else each for each in arguments), timeout_s=30)
            except CommandFailed as error:
                told = str(error)
            (directory / f"{node}-{name}").write_text(told)


def _logs(cluster: Cluster, namespace: str, directory: Path) -> None:
    with contextlib.suppress(CommandFailed):
        for pod in cluster.kubectl("-n", namespace, "get", "pods", "-o", "name").split():
            for previous in ([], ["--previous"]):
                with contextlib.suppress(CommandFailed):
                    told = cluster.kubectl("-n", namespace, "logs", pod, "--tail=2000", *previous, timeout_s=30)
                    name = f"{namespace}-{pod.removeprefix('pod/')}{'-previous' if previous else ''}.log"
                    (directory / name).write_text(told)
