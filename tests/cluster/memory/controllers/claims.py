"""The volume claims of StatefulSets' pods: their creation, and their owners."""

from __future__ import annotations

from tests.cluster.memory.controllers.base import Cluster, Object, changed, owner_reference
from tests.cluster.memory.failures import ApiFailure

__all__ = ("create", "fix", "stale", "volumes")

_KIND = "PersistentVolumeClaim"


def _templates(item: Object) -> list[Object]:
    return item["spec"].get("volumeClaimTemplates") or []


def _name(item: Object, template: Object, number: int) -> str:
    return f"{template['metadata']['name']}-{item['metadata']['name']}-{number}"


def volumes(item: Object, number: int) -> list[Object]:
    """The volumes of a pod with claims."""
    return [
        {"name": each["metadata"]["name"], "persistentVolumeClaim": {"claimName": _name(item, each, number)}}
        for each in _templates(item)
    ]


def create(cluster: Cluster, item: Object, number: int) -> None:
    """Create the claims of a pod that are missing.

    Raises:
        ApiFailure: one of them is being deleted.
    """
    namespace = item["metadata"]["namespace"]
    for template in _templates(item):
        name = _name(item, template, number)
        there = cluster.find(_KIND, namespace, name)
        if there is None:
            made = changed(template)
            made["metadata"] |= {"name": name, "namespace": namespace}
            selected = item["spec"]["selector"].get("matchLabels") or {}
            made["metadata"]["labels"] = {**(made["metadata"].get("labels") or {}), **selected}
            made.pop("status", None)
            cluster.create(_KIND, made)
            owner = item["metadata"]["name"]
            told = f"create Claim {name} Pod {owner}-{number} in StatefulSet {owner} success"
            cluster.event(item, "SuccessfulCreate", told, component="statefulset-controller")
        elif "deletionTimestamp" in there["metadata"]:
            raise ApiFailure(500, "InternalError", f"pvc {name} is being deleted")


def stale(cluster: Cluster, item: Object, number: int) -> bool:
    """Whether a claim still belongs to a former pod with that name, with which it is deleted."""
    if _policy(item)[1] == "Retain":
        return False
    pod = f"{item['metadata']['name']}-{number}"
    for template in _templates(item):
        there = cluster.find(_KIND, item["metadata"]["namespace"], _name(item, template, number))
        if there is not None and any(
            each["kind"] == "Pod" and each["name"] == pod for each in there["metadata"].get("ownerReferences") or ()
        ):
            return True
    return False


def _policy(item: Object) -> tuple[str, str]:
    policy = item["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenDeleted", "Retain"), policy.get("whenScaled", "Retain")


def fix(cluster: Cluster, item: Object, pod: Object, *, scaled_down: bool) -> None:
    """Set the owners of the claims of a pod by the retention policy."""
    number = int(pod["metadata"]["name"].rpartition("-")[2])
    for template in _templates(item):
        claim = cluster.find(_KIND, item["metadata"]["namespace"], _name(item, template, number))
        if claim is None:
            continue
        references = claim["metadata"].get("ownerReferences") or []
        if any(
            _refers(each, owner) and each["uid"] != owner["metadata"]["uid"]
            for each in references
            for owner in (item, pod)
        ):
            continue
        kept = [each for each in references if not any(_refers(each, owner) for owner in (item, pod))]
        mine = [each for each in references if each not in kept]
        wanted: list[Object] = []
        foreign = any(each.get("controller") for each in kept)
        deleted, scaled = _policy(item)
        if not foreign:
            if scaled == "Delete" and scaled_down:
                wanted = [owner_reference(pod)]
            elif deleted == "Delete":
                wanted = [owner_reference(item)]
        if [(each["uid"], bool(each.get("controller"))) for each in mine] != [(each["uid"], True) for each in wanted]:
            cluster.rewrite(cluster.kind(_KIND), claim, ownerReferences=[*kept, *wanted] or None)


def _refers(reference: Object, owner: Object) -> bool:
    return bool(
        reference["kind"] == owner["kind"]
        and reference["apiVersion"].partition("/")[0] == owner["apiVersion"].partition("/")[0]
        and reference["name"] == owner["metadata"]["name"]
    )
