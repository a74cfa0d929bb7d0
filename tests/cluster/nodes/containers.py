"""How a kubelet implements a pod's manifest: environment, volumes, and status."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from millpond.protocol import clock
from tests.cluster.api import AsyncApi, Object
from tests.cluster.nodes.workers import Exit

__all__ = (
    "ContainerProblem",
    "VolumeProblem",
    "conditions",
    "environment_of",
    "mount",
    "running",
    "terminated",
    "waiting",
)

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")


class ContainerProblem(Exception):
    """The container cannot be created: CreateContainerConfigError."""


class VolumeProblem(Exception):
    """A volume cannot be mounted."""


async def environment_of(api: AsyncApi, pod: Object) -> dict[str, str]:
    """The variables of the pod's first container.

    Raises:
        ContainerProblem: a key of a Secret or ConfigMap is missing.
    """
    found: dict[str, str] = {}
    for each in pod["spec"]["containers"][0].get("env", ()):
        source = each.get("valueFrom")
        if source is None:
            value: str | None = _expanded(each.get("value", ""), found)
        elif "fieldRef" in source:
            value = _field(pod, source["fieldRef"]["fieldPath"])
        else:
            kind, reference = next(iter(source.items()))
            value = await _referenced(api, pod["metadata"]["namespace"], kind, reference)
        if value is not None:
            found[each["name"]] = value
    return found


async def mount(api: AsyncApi, pod: Object, directory: Path) -> None:
    """Write the pod's projected volumes into a directory, and check the sources of the others.

    Raises:
        VolumeProblem: a source is missing.
    """
    namespace = pod["metadata"]["namespace"]
    for volume in pod["spec"].get("volumes", ()):
        if volume.get("secret", {}).get("optional"):
            continue
        if "secret" in volume:
            await _wanted(api, volume["name"], "Secret", namespace, volume["secret"]["secretName"])
        elif "configMap" in volume:
            await _wanted(api, volume["name"], "ConfigMap", namespace, volume["configMap"]["name"])
        for source in volume.get("projected", {}).get("sources", ()):
            if "serviceAccountToken" in source:
                wanted = source["serviceAccountToken"]
                account = pod["spec"].get("serviceAccountName", "default")
                token = await api.token(namespace, account, wanted.get("audience"), pod)
                (directory / wanted["path"]).write_text(token)
            elif "configMap" in source:
                found = await _wanted(api, volume["name"], "ConfigMap", namespace, source["configMap"]["name"])
                for item in source["configMap"].get("items", ()):
                    if item["key"] not in found.get("data", {}):
                        raise VolumeProblem(
                            f'MountVolume.SetUp failed for volume "{volume["name"]}" : configmap references '
                            f"non-existent config key: {item['key']}"
                        )
                    (directory / item["path"]).write_text(found["data"][item["key"]])


async def _wanted(api: AsyncApi, volume: str, kind: str, namespace: str, name: str) -> Object:
    found = await api.find(kind, namespace, name)
    if found is None:
        raise VolumeProblem(f'MountVolume.SetUp failed for volume "{volume}" : {kind.lower()} "{name}" not found')
    return found


async def _referenced(api: AsyncApi, namespace: str, kind: str, reference: Object) -> str | None:
    of = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}[kind]
    name, key = reference["name"], reference["key"]
    found = await api.find(of, namespace, name)
    data = (found or {}).get("data") or {}
    if key in data:
        return base64.b64decode(data[key]).decode() if of == "Secret" else str(data[key])
    if reference.get("optional"):
        return None
    if found is None:
        raise ContainerProblem(f'{of.lower()} "{name}" not found')
    raise ContainerProblem(f"couldn't find key {key} in {of} {namespace}/{name}")


def _expanded(text: str, known: dict[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        return "$" if match[1] is None else known.get(match[1], match[0])

    return _REFERENCE.sub(one, text)


def _field(pod: Object, path: str) -> str:
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str(pod["metadata"].get(match[1], {}).get(match[2], ""))
    value: Any = pod
    for part in path.split("."):
        value = value.get(part, "")
    return str(value)


# Status.


def now() -> str:
    return clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(before: Object, *, ready: bool, reason: str = "ContainersNotReady") -> list[Object]:
    """The pod's conditions; unchanged ones keep their times."""
    known = {each["type"]: each for each in before.get("conditions", ())}
    wanted = {
        "PodReadyToStartContainers": True,
        "Initialized": True,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": True,
    }
    made = []
    for name, good in wanted.items():
        status = str(good)
        old = known.get(name, {})
        since = old.get("lastTransitionTime", now()) if old.get("status") == status else now()
        made.append({"type": name, "status": status, "lastTransitionTime": since})
        if not good:
            made[-1] |= {"reason": reason, "message": "containers with unready status: [worker]"}
    return made


def waiting(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running() -> Object:
    return {"running": {"startedAt": now()}}


def terminated(exit: Exit, started_at: str) -> Object:
    reason = "Completed" if exit.code == 0 else exit.reason
    told = {"exitCode": exit.code, "reason": reason, "startedAt": started_at, "finishedAt": now()}
    return {"terminated": {**told, **({"message": exit.message} if exit.message else {})}}
