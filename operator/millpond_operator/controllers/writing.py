"""Writing over what was read, and nothing else: the condition that every applied manifest carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond_operator.kubernetes import Object

__all__ = ("over",)

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
