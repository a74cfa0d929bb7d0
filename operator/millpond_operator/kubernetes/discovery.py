"""The kinds that the API server serves, by its discovery documents.

The kind of a custom resource exists only while its CustomResourceDefinition does; when that is applied again, watches
have to restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiohttp
import msgspec

from .kinds import Kind

__all__ = ("Discovery", "document_of", "names_in", "versions_in")

_GROUPS = "/apis"


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


_group = msgspec.json.Decoder(_Group).decode
_groups = msgspec.json.Decoder(_Groups).decode
_resources = msgspec.json.Decoder(_Resources).decode


def document_of(kind: Kind) -> str:
    """Return the path of the discovery document with all kinds of this group and version."""
    return f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"


def names_in(document: bytes) -> frozenset[str]:
    """Return the plural names of the kinds in a discovery document.

    Raises:
        msgspec.MsgspecError: it is not a discovery document.
    """
    return frozenset(each.name for each in _resources(document).resources)


def versions_in(document: bytes) -> tuple[str, ...]:
    """Return the versions in the discovery document of a group.

    Raises:
        msgspec.MsgspecError: it is not such a document.
    """
    return tuple(each.group_version.rpartition("/")[2] for each in _group(document).versions)


class Discovery:
    """Observes the discovery documents that kopf reads.

    Args:
        kinds: the kinds that have to be served.

    Attributes:
        missing: set once a document lacked one of them.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.missing = asyncio.Event()
        self._kinds = tuple(kinds)
        self._documents = {document_of(kind) for kind in self._kinds}

    async def heard(self, response: aiohttp.ClientResponse) -> None:
        """Process a response of the API server, to whatever request."""
        path = response.url.path
        if path == _GROUPS and response.status == 200:
            versions = {
                each.group_version for group in _groups(await response.read()).groups for each in group.versions
            }
            lacks = any(kind.group and kind.api_version not in versions for kind in self._kinds)
        elif path in self._documents and response.status in {200, 404}:
            served = names_in(await response.read()) if response.status == 200 else frozenset[str]()
            lacks = any(kind.plural not in served for kind in self._kinds if document_of(kind) == path)
        else:
            return
        if lacks:
            self.missing.set()
