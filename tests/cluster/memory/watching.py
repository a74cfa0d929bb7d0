"""Lists, and watches that continue from them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tests.cluster.memory.failures import ApiFailure, bad_request, expired, status_of
from tests.cluster.memory.kinds import Kind
from tests.cluster.memory.selectors import by_fields, by_labels
from tests.cluster.memory.store import Change, Entry, Store, encode

__all__ = ("Watches", "listed")

Object = dict[str, Any]
Query = Mapping[str, str]
_BOOKMARK_S = 60.0
_SHORTEST_S = 1800.0


def _filter(kind: Kind, query: Query, name: str = "") -> Callable[[Entry], bool] | None:
    """Whether an object matches; None when all do."""
    labels, fields = query.get("labelSelector"), query.get("fieldSelector")
    if name:
        fields = f"metadata.name={name}"
    if not labels and not fields:
        return None
    by_label = by_labels(labels) if labels else None
    by_field = by_fields(kind, fields) if fields else None

    def fits(entry: Entry) -> bool:
        item = entry.object
        if by_label is not None and not by_label(item["metadata"].get("labels") or {}):
            return False
        return by_field is None or by_field(item)

    return fits


def listed(store: Store, kind: Kind, namespace: str | None, query: Query) -> bytes:
    """A list, or a page of it.

    Raises:
        ApiFailure: the query is invalid, or its version was compacted.
    """
    fits = _filter(kind, query)
    limit = int(query.get("limit") or 0)
    asked, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    version, after = store.version, ("", "")
    if token := query.get("continue"):
        version, after = _continued(token)
        if version < store.floor:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results."
            )
    elif match == "Exact":
        if asked in {"", "0"}:
            raise bad_request('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        version = int(asked)
    elif match and not asked:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if asked.isdigit() and int(asked) > store.version:
        raise _too_new(int(asked), store.version)
    entries = store.entries(kind, namespace) if version == store.version else store.entries_at(version, kind, namespace)
    found: list[Entry] = []
    more = ""
    left = 0
    for entry in entries:
        metadata = entry.object["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key <= after or (fits is not None and not fits(entry)):
            continue
        if limit and len(found) == limit:
            left += 1
            continue
        found.append(entry)
        last = key
    if left:
        more = base64.urlsafe_b64encode(json.dumps([version, *last]).encode()).decode()
    metadata = {"resourceVersion": str(version)}
    if more:
        metadata["continue"] = more
        if fits is None:
            metadata["remainingItemCount"] = left  # type: ignore[assignment]
    head = {
        "kind": kind.list_kind or f"{kind.kind}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
    }
    items = b",".join(_bare(kind, entry) for entry in found)
    return encode(head)[:-1] + b',"items":[' + items + b"]}"


def _bare(kind: Kind, entry: Entry) -> bytes:
    """An object as in lists: built-in kinds have no kind there."""
    if not kind.type:
        return entry.raw
    return b"{" + entry.raw[len(encode({"apiVersion": kind.api_version, "kind": kind.kind})) :]


def _continued(token: str) -> tuple[int, tuple[str, str]]:
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
        return int(version), (namespace, name)
    except (ValueError, binascii.Error, TypeError):
        raise bad_request("continue key is not valid: illegal base64 data") from None


def _too_new(asked: int, now: int) -> ApiFailure:
    return ApiFailure(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {now}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


class _Watch:
    def __init__(self, namespace: str | None, fits: Callable[[Entry], bool] | None) -> None:
        self.namespace = namespace
        self.fits = fits
        self.lines: list[bytes] = []
        self.news = asyncio.Event()
        self.over = False
        """Its kind is not served any more."""

    def see(self, change: Change, lines: dict[str, bytes]) -> None:
        entry = change.entry
        if self.namespace is not None and entry.object["metadata"].get("namespace", "") != self.namespace:
            return
        type = change.type
        if self.fits is not None:
            before = change.before is not None and self.fits(change.before)
            now = type != "DELETED" and self.fits(entry)
            if not before and not now:
                return
            type = "ADDED" if not before else "MODIFIED" if now else "DELETED"
            if type == "DELETED" and change.type != "DELETED":
                assert change.before is not None
                old = change.before.object
                metadata = {**old["metadata"], "resourceVersion": str(change.version)}
                entry = Entry({**old, "metadata": metadata}, change.version)
                self._add(_line("DELETED", entry.raw))
                return
        line = lines.get(type)
        if line is None:
            line = lines[type] = _line(type, entry.raw)
        self._add(line)

    def _add(self, line: bytes) -> None:
        self.lines.append(line)
        self.news.set()


def _line(type: str, raw: bytes) -> bytes:
    return b'{"type":"' + type.encode() + b'","object":' + raw + b"}\n"


class Watches:
    """All open watches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watches: dict[Kind, list[_Watch]] = {}
        self._over = asyncio.Event()
        store.listen(self._changed)

    def end(self) -> None:
        """End all of them, like a server that stops."""
        over, self._over = self._over, asyncio.Event()
        over.set()
        for watches in self._watches.values():
            for watch in watches:
                watch.news.set()

    def end_of(self, kind: Kind) -> None:
        """End those of a removed kind, after they have delivered everything."""
        for watch in self._watches.get(kind, ()):
            watch.over = True
            watch.news.set()

    def _changed(self, change: Change) -> None:
        watches = self._watches.get(change.kind)
        if watches:
            lines: dict[str, bytes] = {}
            for watch in watches:
                watch.see(change, lines)

    async def watch(self, kind: Kind, namespace: str | None, query: Query, name: str = "") -> AsyncIterator[bytes]:
        """Yield changes as lines, until the time is over.

        Raises:
            ApiFailure: first, if the query is invalid.
        """
        over = self._over
        fits = _filter(kind, query, name)
        asked = query.get("resourceVersion", "")
        if asked and not asked.isdigit():
            raise ApiFailure(
                400,
                "BadRequest",
                f'invalid resource version "{asked}": strconv.ParseUint: parsing "{asked}": invalid syntax',
            )
        watch = _Watch(namespace, fits)
        bookmarks = query.get("allowWatchBookmarks") in {"1", "true"}
        initial = query.get("sendInitialEvents") in {"1", "true"}
        if asked.isdigit() and int(asked) > self._store.version:
            raise _too_new(int(asked), self._store.version)
        try:
            if initial or asked in {"", "0"}:
                for entry in self._store.entries(kind, namespace):
                    if fits is None or fits(entry):
                        watch.lines.append(_line("ADDED", entry.raw))
                if initial:
                    watch.lines.append(self._bookmark(kind, ended=True))
            else:
                for change in self._store.since(kind, int(asked)):
                    watch.see(change, {})
        except ApiFailure as failure:
            yield encode({"type": "ERROR", "object": status_of(failure)}) + b"\n"
            return
        if watch.lines:
            watch.news.set()
        watches = self._watches.setdefault(kind, [])
        watches.append(watch)
        loop = asyncio.get_running_loop()
        seconds = float(query.get("timeoutSeconds") or 0) or random.uniform(_SHORTEST_S, 2 * _SHORTEST_S)
        end = loop.time() + seconds
        next_bookmark = loop.time() + _BOOKMARK_S if bookmarks else end + 1
        yield b""
        try:
            while not over.is_set():
                if watch.lines:
                    lines, watch.lines = watch.lines, []
                    watch.news.clear()
                    yield b"".join(lines)
                    continue
                if watch.over:
                    return
                now = loop.time()
                if now >= end:
                    return
                if now >= next_bookmark:
                    next_bookmark = now + _BOOKMARK_S
                    yield self._bookmark(kind)
                try:
                    async with asyncio.timeout(min(end, next_bookmark) - now):
                        await watch.news.wait()
                except TimeoutError:
                    pass
                watch.news.clear()
        finally:
            watches.remove(watch)

    def _bookmark(self, kind: Kind, *, ended: bool = False) -> bytes:
        metadata: Object = {"resourceVersion": str(self._store.version)}
        if ended:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        item = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return encode({"type": "BOOKMARK", "object": item}) + b"\n"
