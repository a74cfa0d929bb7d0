"""Helm, as a platform engineer runs it on the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import Cluster
from e2e.commands import ROOT, run
from e2e.images import Images

__all__ = ("CHART", "Helm", "image_values")

CHART = ROOT / "helm" / "millpond"
_TIMEOUT = "180s"
_TIMEOUT_S = 240.0


def image_values(images: Images) -> dict[str, str]:
    """Return the values that name the images of this run."""
    values: dict[str, str] = {}
    for path, image in (("image", images.operator), ("test.image", images.worker)):
        name, tag = image.rsplit(":", 1)
        registry, repository = name.split("/", 1)
        values |= {f"{path}.registry": registry, f"{path}.repository": repository, f"{path}.tag": tag}
    return values


class Helm:
    """One of the Helms with the credentials of the cluster.

    Args:
        program: its path.
        cluster: the cluster.
        namespace: of the releases.
        account: a service account of the namespace to act as; None for the administrator.
    """

    def __init__(self, program: Path, cluster: Cluster, namespace: str, account: str | None = None) -> None:
        self._program = program
        self._namespace = namespace
        self._environment = cluster.environment
        self._as: list[str] = []
        if account is not None:
            self._as = [
                f"--kube-as-user=system:serviceaccount:{namespace}:{account}",
                "--kube-as-group=system:serviceaccounts",
                "--kube-as-group=system:authenticated",
            ]

    def __call__(self, *arguments: str | Path, values: Mapping[str, str] | None = None) -> str:
        """Run Helm in the namespace and return its output.

        Raises:
            CommandFailed: it failed.
        """
        given = [word for path, value in (values or {}).items() for word in ("--set", f"{path}={value}")]
        command = [self._program, *arguments, "--namespace", self._namespace, *self._as, *given]
        return run(*command, timeout_s=_TIMEOUT_S, environment=self._environment)

    def install(self, release: str, chart: Path, *options: str, values: Mapping[str, str]) -> None:
        """Install a chart, and wait until its pods are ready."""
        self("install", release, chart, *options, "--wait", "--timeout", _TIMEOUT, values=values)

    def upgrade(self, release: str, chart: Path, values: Mapping[str, str]) -> None:
        """Upgrade a release with its former values, and wait until its pods are ready."""
        self(
            "upgrade", release, chart, "--reset-then-reuse-values", "--wait", "--timeout", _TIMEOUT, values=values
        )  # fmt: skip

    def test(self, release: str, *options: str) -> str:
        """Run the release's test and return what Helm prints."""
        return self("test", release, *options, "--timeout", _TIMEOUT)

    def uninstall(self, release: str) -> None:
        """Uninstall a release, and wait until its objects are deleted."""
        self("uninstall", release, "--wait", "--timeout", _TIMEOUT)
