"""The cluster: the one of `KUBECONFIG`, or three nodes that `kind` creates for one run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import Cluster
from e2e.commands import WORK, CommandFailed, Lacking, found, run

__all__ = ("Place", "open_cluster")

_NAME = "millpond-e2e"
_MINUTES_S = 300.0
_GRACE = "20s"


@dataclass(frozen=True)
class Place:
    """A cluster, and the way to load images onto its nodes."""

    cluster: Cluster
    kind: str | None
    """The name of the kind cluster; None when it is not one."""
    registry: str | None
    """The registry from which its nodes pull images that are not loaded."""


@contextlib.contextmanager
def open_cluster() -> Iterator[Place]:
    """Provide the cluster to test on. One that is created here is deleted afterwards, unless `E2E_KEEP` is set.

    Raises:
        Lacking: there is none, and none can be made.
    """
    kubectl = found("kubectl")
    if kubectl is None:
        raise Lacking("e2e lacks kubectl: install it, or name it with KUBECTL.")
    if given := os.environ.get("KUBECONFIG"):
        with Cluster(kubectl, None) as cluster:
            yield _place(cluster, given)
        return
    kubeconfig = WORK / "kubeconfig"
    kind = _make(kubeconfig)
    try:
        with Cluster(kubectl, kubeconfig) as cluster:
            cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=120s", timeout_s=130)
            yield Place(cluster, _NAME, None)
    finally:
        if not os.environ.get("E2E_KEEP"):
            run(kind, "delete", "cluster", "--name", _NAME, "--kubeconfig", kubeconfig)


def _place(cluster: Cluster, given: str) -> Place:
    try:
        cluster.kubectl("get", "nodes", "--request-timeout=20s")
        context = cluster.kubectl("config", "current-context").strip()
    except CommandFailed as error:
        raise Lacking(
            f"e2e lacks a cluster: the one that KUBECONFIG={given} names does not answer ({_short(error)})."
        ) from error
    name = context.removeprefix("kind-")
    kind = found("kind")
    if name != context and kind is not None and name in run(kind, "get", "clusters").split():
        return Place(cluster, name, None)
    registry = os.environ.get("E2E_REGISTRY")
    if registry is None:
        raise Lacking(
            f"e2e lacks a way to bring images to {context}: it is no kind cluster of this machine, so set E2E_REGISTRY"
            " to a registry that docker pushes to and the cluster's nodes pull from."
        )
    return Place(cluster, None, registry)


def _make(kubeconfig: Path) -> str:
    """Create a cluster of three nodes; return the path of kind."""
    kind, docker = found("kind"), found("docker")
    missing = [name for name, path in (("kind", kind), ("docker", docker)) if path is None]
    if kind is None or docker is None:
        raise Lacking(
            f"e2e lacks a cluster: set KUBECONFIG to one, or install {' and '.join(missing)} so that one can be made."
        )
    try:
        run(docker, "version", timeout_s=30)
    except CommandFailed as error:
        raise Lacking(
            f"e2e lacks a cluster: set KUBECONFIG to one, or start docker, which kind needs; {error}"
        ) from error
    grace = {"kind": "ClusterConfiguration", "controllerManager": {"extraArgs": {"node-monitor-grace-period": _GRACE}}}
    config = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane"}, {"role": "worker"}, {"role": "worker"}],
        "kubeadmConfigPatches": [json.dumps(grace)],
    }
    image = os.environ.get("KIND_NODE_IMAGE")
    kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    command = [kind, "create", "cluster", "--name", _NAME, "--kubeconfig", str(kubeconfig), "--wait", "180s"]
    run(kind, "delete", "cluster", "--name", _NAME, "--kubeconfig", kubeconfig)
    try:
        run(
            *command, "--config", "-", *(["--image", image] if image else []),
            text=json.dumps(config), timeout_s=_MINUTES_S,
        )  # fmt: skip
    except CommandFailed as error:
        raise Lacking(
            "e2e lacks a cluster: kind could not make one"
            f"{'' if image else ' from its default node image (KIND_NODE_IMAGE names another)'} ({_short(error)})."
        ) from error
    return kind


def _short(error: CommandFailed) -> str:
    """Return the last line of a program's output."""
    return str(error).splitlines()[-1].rstrip(".")
