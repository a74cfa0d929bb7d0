"""Faults of nodes, of processes on them and of their disks, for nodes that are containers of docker, as kind's are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from e2e.cluster import Cluster, Object, eventually
from e2e.commands import WORK, CommandFailed, Lacking, found, run
from e2e.evidence import dump_nodes

__all__ = ("Nodes",)

_MANIFEST = "kube-apiserver.yaml"
_MANIFESTS, _ASIDE = "/etc/kubernetes/manifests", "/etc/kubernetes"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_STOP_S = 60.0
_BACK_S = 180.0
_DISK_MB = 64


class Nodes:
    """The nodes of a kind cluster of this machine, with every fault undone by `heal`.

    Raises:
        Lacking: docker is not there.
    """

    def __init__(self, cluster: Cluster) -> None:
        docker = found("docker")
        if docker is None:
            raise Lacking("the worst days lack docker, whose containers are the cluster's nodes")
        self._docker = docker
        self.cluster = cluster
        nodes = cluster.objects("nodes")
        self.names = tuple(str(each["metadata"]["name"]) for each in nodes)
        self._control_plane = next(
            str(each["metadata"]["name"]) for each in nodes if _CONTROL_PLANE in each["metadata"]["labels"]
        )
        self._killed: list[str] = []
        self._frozen: list[str] = []
        self._cordoned: list[str] = []
        self._api_server_is_away = False

    def kill(self, node: str) -> None:
        """Take the power from a node: its network is gone first, so that no connection of its processes ends."""
        self._killed.append(node)
        self._on(node, "ip link set dev eth0 down")
        run(self._docker, "kill", node)

    def freeze(self, node: str) -> None:
        """Stop all processes of a node, without an end of their connections."""
        self._frozen.append(node)
        run(self._docker, "pause", node)

    def drain(self, node: str) -> None:
        """`kubectl drain`, as before maintenance."""
        self._cordoned.append(node)
        self.cluster.kubectl(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s", timeout_s=110
        )

    def kill_process(self, pod: Object) -> None:
        """SIGKILL the processes of a pod's container; the kubelet starts it again."""
        uid = str(pod["metadata"]["uid"])
        pattern = f"{uid}|{uid.replace('-', '_')}"
        # The pod's sandbox has a process of its own, which stays.
        script = (
            f"for each in $(grep -lE '{pattern}' /proc/[0-9]*/cgroup 2>/dev/null); do pid=${{each#/proc/}};"
            ' pid=${pid%/cgroup}; [ "$(cat /proc/$pid/comm)" = pause ] || echo $pid; done'
        )
        node = str(pod["spec"]["nodeName"])
        pids = self._on(node, script).split()
        assert pids, f"no process of pod {pod['metadata']['name']} on {node}"
        self._on(node, f"kill -KILL {' '.join(pids)}")

    @contextlib.contextmanager
    def api_server_away(self, seconds: float) -> Iterator[None]:
        """Stop the API server as a static pod; start it again when the block has ended and the time has passed.

        The time counts from the moment at which it does not answer any more.
        """
        self._api_server_is_away = True
        self._on(self._control_plane, f"mv {_MANIFESTS}/{_MANIFEST} {_ASIDE}/{_MANIFEST}")
        eventually(lambda: not self._api_server_answers(), "the API server is stopped", _STOP_S)
        since = time.monotonic()
        yield
        eventually(lambda: time.monotonic() - since >= seconds, "the outage is over", seconds + 1)
        self._api_server_back()

    @contextlib.contextmanager
    def small_disk(self, node: str, directory: str) -> Iterator[None]:
        """Lay an empty file system of 64 MB over a directory of a node: containers that start in the block have it.

        They keep it until they end.
        """
        self._on(node, f"mount -t tmpfs -o size={_DISK_MB}m,mode=0777 small {directory}")
        try:
            yield
        finally:
            self._on(node, f"umount --lazy {directory}")

    def fill_disk(self, node: str, directory: str) -> None:
        """Fill a small disk to the last byte.

        Raises:
            CommandFailed: the directory is on no small disk: the disk of the machine must not be filled.
        """
        # Twice bounded: by the kind of file system, and by the number of bytes. The worker may delete files meanwhile.
        self._on(
            node,
            f"set -e; [ $(stat --file-system --format=%T {directory}) = tmpfs ]; mountpoint -q {directory};"
            f" for each in $(seq 50); do dd if=/dev/zero bs=16k count={_DISK_MB * 64} >> {directory}/ballast || true;"
            f" [ $(stat --file-system --format=%a {directory}) != 0 ] || exit 0; done; exit 1",
        )

    def empty_disk(self, node: str, directory: str) -> None:
        """Make room again on a small disk."""
        self._on(node, f"rm -f {directory}/ballast")

    def heal(self) -> None:
        """Undo all faults, and wait until the API server answers and all nodes are ready.

        Raises:
            AssertionError: a node does not come back; the message says where the evidence is.
        """
        try:
            self.undo()
            self.cluster.kubectl(
                "wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={_BACK_S:g}s", timeout_s=_BACK_S + 10
            )
        except (AssertionError, CommandFailed) as error:
            directory = WORK / "nodes"
            dump_nodes(self.names, directory)
            raise AssertionError(f"the nodes do not come back ({error}); see {directory}") from error

    def undo(self) -> None:
        """Undo all faults, without waiting for the nodes."""
        while self._frozen:
            run(self._docker, "unpause", self._frozen.pop())
        while self._killed:
            run(self._docker, "start", self._killed.pop())
        self._api_server_back()
        while self._cordoned:
            self.cluster.kubectl("uncordon", self._cordoned.pop())

    def _api_server_back(self) -> None:
        if self._api_server_is_away:
            self._on(self._control_plane, f"[ ! -e {_ASIDE}/{_MANIFEST} ] || mv {_ASIDE}/{_MANIFEST} {_MANIFESTS}/")
            eventually(self._api_server_answers, "the API server answers again", _BACK_S)
            self._api_server_is_away = False

    def _api_server_answers(self) -> bool:
        try:
            return self.cluster.kubectl("get", "--raw", "/readyz", "--request-timeout=2s", timeout_s=10) == "ok"
        except CommandFailed:
            return False

    def _on(self, node: str, script: str) -> str:
        return run(self._docker, "exec", node, "sh", "-c", script, timeout_s=60)
