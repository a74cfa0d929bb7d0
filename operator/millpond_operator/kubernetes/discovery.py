"""Which kinds the API server serves, by its discovery documents.

A kind of a custom resource comes with its definition and goes with it, and whoever watches has to begin anew when it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiohttp
import msgspec

from .kinds import Kind

__all__ = ("Discovery", "document_of", "names_in")

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


_groups = msgspec.json.Decoder(_Groups).decode
_resources = msgspec.json.Decoder(_Resources).decode


def document_of(kind: Kind) -> str:
    """Return the path of the document that names all kinds of the group and version of one."""
    return f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"


def names_in(document: bytes) -> frozenset[str]:
    """Return the plural names of the kinds that a document names.

    Raises:
        msgspec.MsgspecError: it is no such document.
    """
    return frozenset(each.name for each in _resources(document).resources)


class Discovery:
    """Listens to the answers that somebody else gets who looks for kinds.

    Args:
        kinds: that have to be served.

    Attributes:
        lacking: set once an answer lacked one of them.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.lacking = asyncio.Event()
        self._kinds = tuple(kinds)
        self._documents = {document_of(kind) for kind in self._kinds}

    async def heard(self, response: aiohttp.ClientResponse) -> None:
        """Take in an answer, whatever it is to."""
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
            self.lacking.set()
