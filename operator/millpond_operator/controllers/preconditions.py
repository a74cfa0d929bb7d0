"""Write over what was read, and over nothing else: the version that manifests and statuses carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond_operator.kubernetes import Cache, Client, Conflict, Kind, NotFound, Object

__all__ = ("over", "read_again", "write_status")

_NO_VERSION = "1"
"""A version that no object has: etcd counts from 2. An API server that finds an object answers with a conflict, and makes
one when there is none. Created by POST instead, its fields would be held by another manager than applying has, and would
stay when they are no longer wanted."""


def over(manifest: Object, there: Mapping[str, Any] | None) -> Object:
    """The manifest for an object as it was read, or for none: applied to anything else, the API server refuses it.

    Args:
        manifest: what is wanted.
        there: the object that was read; None when there was none.
    """
    version = _NO_VERSION if there is None else there["metadata"]["resourceVersion"]
    return manifest | {"metadata": manifest["metadata"] | {"resourceVersion": version}}


async def write_status(
    client: Client, cache: Cache, kind: Kind, metadata: Mapping[str, str], status: Mapping[str, Any]
) -> None:
    """Apply the status of an object as it was read.

    Args:
        client: writes it.
        cache: gets the answer; after a conflict, the object as it is now.
        kind: of the object.
        metadata: its namespace, its name, and the `resourceVersion` that was read.
        status: the whole of it.

    Raises:
        ApiError: it was not written; `Conflict` and `NotFound` when the object had changed.
    """
    object: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": dict(metadata),
        "status": dict(status),
    }
    try:
        cache.put(kind, await client.apply(kind, object, subresource="status"))
    except (Conflict, NotFound):
        await read_again(client, cache, kind, metadata["namespace"], metadata["name"])
        raise


async def read_again(client: Client, cache: Cache, kind: Kind, namespace: str, name: str) -> None:
    """Read an object that had changed before it was written over.

    Raises:
        ApiError: it cannot be read.
    """
    try:
        cache.put(kind, await client.get(kind, namespace, name))
    except NotFound:
        known = cache.get(kind, namespace, name)
        if known is not None:
            cache.remove(kind, known)
