"""The first step of a deletion: finalizers, and the grace period of pods."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.cluster.memory.kinds import Kind

__all__ = ("begun", "over")

Object = dict[str, Any]
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"


def begun(kind: Kind, item: Object, options: Object, now: datetime) -> Object | None:
    """The object after its deletion was requested; None when it is deleted at once.

    Args:
        kind: its kind.
        item: the object.
        options: DeleteOptions.
        now: the time.
    """
    metadata = item["metadata"]
    grace = _grace(kind, item, options)
    finalizers = _finalizers(kind, metadata.get("finalizers") or [], options)
    if kind.kind == "Namespace":
        made = {**item, "metadata": {**metadata}, "status": {**item.get("status", {}), "phase": "Terminating"}}
        if not item["spec"].get("finalizers") and not finalizers:
            return None
        if "deletionTimestamp" in metadata:
            return item
        made["metadata"] |= {"deletionTimestamp": _stamp(now)}
        return made
    made = {**item, "metadata": {**metadata}}
    told = made["metadata"]
    if finalizers:
        told["finalizers"] = finalizers
    else:
        told.pop("finalizers", None)
    leaving = "deletionTimestamp" in metadata
    if grace:
        if leaving and metadata.get("deletionGracePeriodSeconds", 0) <= grace:
            return made
        told |= {"deletionTimestamp": _stamp(now + timedelta(seconds=grace)), "deletionGracePeriodSeconds": grace}
        _bump(told)
        return made
    if finalizers:
        if leaving and metadata.get("deletionGracePeriodSeconds", 0) == 0:
            return made
        told |= {"deletionTimestamp": _stamp(now), "deletionGracePeriodSeconds": 0}
        _bump(told)
        return made
    return None


def over(kind: Kind, item: Object) -> bool:
    """Whether an object that is being deleted and has no finalizers is deleted with its next write."""
    if kind.kind == "Namespace":
        return not item["spec"].get("finalizers")
    return not item["metadata"].get("deletionGracePeriodSeconds")


def _bump(metadata: Object) -> None:
    if metadata.get("generation"):
        metadata["generation"] += 1


def _grace(kind: Kind, item: Object, options: Object) -> int:
    if kind.kind != "Pod":
        return 0
    asked = options.get("gracePeriodSeconds")
    seconds = int(asked if asked is not None else item["spec"].get("terminationGracePeriodSeconds", 30))
    if not item["spec"].get("nodeName") or item.get("status", {}).get("phase") in {"Failed", "Succeeded"}:
        return 0
    return seconds if seconds >= 0 else 1


def _finalizers(kind: Kind, there: list[str], options: Object) -> list[str]:
    policy = options.get("propagationPolicy")
    if options.get("orphanDependents") is not None:
        policy = "Orphan" if options["orphanDependents"] else "Background"
    if policy is None:
        if _ORPHAN in there or _FOREGROUND in there:
            return there
        policy = "Orphan" if kind.kind == "Job" else "Background"
    kept = [each for each in there if each not in {_ORPHAN, _FOREGROUND}]
    if policy == "Orphan":
        return [*kept, _ORPHAN]
    return [*kept, _FOREGROUND] if policy == "Foreground" else kept


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
