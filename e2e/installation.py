"""The operator as `kubectl apply -k crds/` and `-k deploy/` install it, with the image of this run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from e2e.cluster import Cluster, Object, eventually
from e2e.commands import ROOT, WORK, CommandFailed

__all__ = ("Installation",)

_OVERLAY = WORK / "overlay"
_LEASE = "millpond-operator"
_READY_S = 120.0


class Installation:
    """An installation of the operator in a cluster.

    Attributes:
        namespace: where it is.
        deployment: its name.
    """

    def __init__(self, cluster: Cluster, image: str, content: str) -> None:
        """Render the manifests.

        Args:
            cluster: where to.
            image: the operator's image.
            content: what tells it from another one of the same name.
        """
        self._cluster = cluster
        self._manifests = self._rendered(image)
        found = [each for each in self._manifests if each["kind"] == "Deployment"]
        assert len(found) == 1, "deploy/ has one Deployment, which is the operator"
        self.namespace = str(found[0]["metadata"]["namespace"])
        self.deployment = str(found[0]["metadata"]["name"])
        self._deployment = found[0]
        # An operator that is there already is replaced by one of the image that was built now, which has the same name.
        template = self._deployment["spec"]["template"]["metadata"]
        template.setdefault("annotations", {})["millpond.dev/image-id"] = content

    def install(self) -> None:
        """Install the custom resource definitions, then the operator, and wait until it is ready.

        An older installation is upgraded.
        """
        self._cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "crds"))
        bundle = {"apiVersion": "v1", "kind": "List", "items": self._manifests}
        self._cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(bundle))
        self.await_ready()

    def upgrade(self, version: str) -> None:
        """Install it again as another version: with another annotation and variable, so all its pods are replaced."""
        template = self._deployment["spec"]["template"]
        template["metadata"]["annotations"]["millpond.dev/version"] = version
        environment = template["spec"]["containers"][0]["env"]
        environment[:] = [each for each in environment if each["name"] != "MILLPOND_OPERATOR_UPGRADE_BUDGET"]
        environment.append({"name": "MILLPOND_OPERATOR_UPGRADE_BUDGET", "value": "2"})
        self.install()

    def remove(self) -> None:
        """Delete the operator, and wait until none of its pods is left; its objects stay."""
        self._cluster.kubectl("-n", self.namespace, "delete", "deployment", self.deployment, "--cascade=foreground")
        eventually(lambda: not self.pods(), "no pod of the operator is left", 60)

    def bring_back(self) -> None:
        """Install it again after `remove`."""
        self._cluster.apply(self._deployment)
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until it is ready.

        Raises:
            CommandFailed: it is not in time.
        """
        self._cluster.kubectl(
            "-n", self.namespace, "rollout", "status", f"deployment/{self.deployment}", f"--timeout={_READY_S:g}s",
            timeout_s=_READY_S + 10,
        )  # fmt: skip

    def pods(self) -> list[Object]:
        """Its pods."""
        labels: dict[str, str] = self._deployment["spec"]["selector"]["matchLabels"]
        chosen = ",".join(f"{name}%3D{value}" for name, value in labels.items())
        return self._cluster.objects("pods", self.namespace, chosen)

    def leader(self) -> str:
        """Return the name of the leading pod; "" if none leads."""
        holder = str(self._lease().get("holderIdentity") or "")
        return next((name for pod in self.pods() if (name := str(pod["metadata"]["name"])) in holder), "")

    def leading_pod(self) -> Object | None:
        """Return the leading pod; None if none leads."""
        leader = self.leader()
        return next((pod for pod in self.pods() if pod["metadata"]["name"] == leader), None)

    def lease_renewals(self) -> str:
        """Return which leader renewed its lease last and when; another answer means that an operator leads."""
        lease = self._lease()
        return f"{lease.get('holderIdentity')} {lease.get('renewTime')}"

    def _lease(self) -> Object:
        lease = self._cluster.get("leases", self.namespace, _LEASE)
        return (lease or {}).get("spec") or {}

    def _rendered(self, image: str) -> list[Object]:
        """Return the manifests of `deploy/` with another image."""
        plain = self._cluster.kubectl("kustomize", str(ROOT / "deploy"))
        named = set(re.findall(r"^\s*(?:- )?image: [\"']?([^\s\"']+)", plain, re.MULTILINE))
        assert len(named) == 1, f"deploy/ names one image, which is the operator's, not {named}"
        name, tag = image.rsplit(":", 1)
        overlay: dict[str, Any] = {
            "resources": [os.path.relpath(ROOT / "deploy", _OVERLAY)],
            "images": [{"name": re.sub(r"(:[^/:]+|@.*)$", "", named.pop()), "newName": name, "newTag": tag}],
        }
        _OVERLAY.mkdir(parents=True, exist_ok=True)
        (_OVERLAY / "kustomization.yaml").write_text(json.dumps(overlay))  # JSON is YAML
        try:
            # `apply` would add what the cluster has already, such as resource versions.
            answer = self._cluster.kubectl("create", "-k", str(_OVERLAY), "--dry-run=client", "-o", "json")
        except CommandFailed as error:
            raise AssertionError(f"deploy/ cannot be rendered: {error}") from error
        return list(_documents(answer))


def _documents(text: str) -> Iterator[Object]:
    """Return the JSON objects of a text, which follow each other without a separator."""
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:].lstrip()
