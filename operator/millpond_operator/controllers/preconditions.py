"""Preconditions of writes: an object is only written over the version that was read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from millpond_operator.kubernetes import Cache, Client, Conflict, Invalid, Kind, NotFound, Object

__all__ = ("over", "read_again", "write_status")

_NO_VERSION = "1"
"""A version that no object has, since etcd counts from 2: applying with it creates an object or is a conflict.

If the object were created by POST instead, applying would not own its fields, and could not remove them later.
"""


def over(manifest: Object, existing: Mapping[str, Any] | None) -> Object:
    """Return a manifest that applies only to the version that was read, or only if the object does not exist.

    Args:
        manifest: the wanted object.
        existing: the object that was read; None when there was none.
    """
    version = _NO_VERSION if existing is None else existing["metadata"]["resourceVersion"]
    return manifest | {"metadata": manifest["metadata"] | {"resourceVersion": version}}


async def write_status(  # noqa: PLR0913 - what is written, over what
    client: Client,
    cache: Cache,
    kind: Kind,
    metadata: Mapping[str, str],
    status: Mapping[str, Any],
    sole_writer_of: Collection[str] | None = None,
) -> None:
    """Apply the status of an object over the version that was read.

    Applying keeps fields that another field manager owns, as after `kubectl edit --subresource status` or from a backup
    that was restored. A rollout in such a status would never end.

    Args:
        client: writes the status.
        cache: gets the written object; after a conflict, the current one.
        kind: the kind of the object.
        metadata: its namespace, name and the `resourceVersion` that was read.
        status: the whole status.
        sole_writer_of: the types of the operator's conditions, where nobody else may write anything but conditions of
            other types: what others wrote is removed. None where others write other fields of the status.

    Raises:
        ApiError: it was not written; `Conflict` and `NotFound` when the object had changed.
    """
    object: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": dict(metadata),
        "status": dict(status),
    }
    namespace, name = metadata["namespace"], metadata["name"]

    async def without_additions(found: Object) -> Object:
        """Remove what others added, and return the object after that."""
        removals = {} if sole_writer_of is None else _removals(found.get("status", {}), status, sole_writer_of)
        if not removals:
            return found
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        return await client.patch(kind, namespace, name, {"metadata": version, "status": removals}, "status")

    try:
        try:
            answer = await client.apply(kind, object, subresource="status")
        except Invalid:  # without the operator's part, what others own of a field may be no valid one
            found = await client.get(kind, namespace, name)
            if found["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
                raise
            left = await without_additions(found)
            if left is found:
                raise
            object["metadata"]["resourceVersion"] = left["metadata"]["resourceVersion"]
            answer = await client.apply(kind, object, subresource="status")
        cache.put(kind, await without_additions(answer))
    except (Conflict, NotFound):
        await read_again(client, cache, kind, namespace, name)
        raise


def _removals(found: Mapping[str, Any], wanted: Mapping[str, Any], own: Collection[str]) -> Object:
    """Return the merge patch that removes what is not wanted; an empty one when there is nothing to remove."""
    patch: Object = dict.fromkeys(found.keys() - wanted.keys() - {"conditions"})
    for key, value in wanted.items():
        there = found.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping) and (deeper := _removals(there, value, own)):
            patch[key] = deeper
    types = {each["type"] for each in wanted.get("conditions", ())}
    conditions = found.get("conditions") or []
    kept = [each for each in conditions if each["type"] in types or each["type"] not in own]
    if len(kept) < len(conditions):
        patch["conditions"] = kept
    return patch


async def read_again(client: Client, cache: Cache, kind: Kind, namespace: str, name: str) -> None:
    """Read an object into the cache after a write over it failed because it had changed.

    Raises:
        ApiError: it cannot be read.
    """
    try:
        cache.put(kind, await client.get(kind, namespace, name))
    except NotFound:
        known = cache.get(kind, namespace, name)
        if known is not None:
            cache.remove(kind, known)
