"""Raw rows of what a worker holds, for tools that look into state: of every store on disk, of active tasks and of copies.

`GET /v1/raw` lists the store partitions, and the other workers. `GET /v1/raw/{store}/{partition}` is answered with
frames as between workers: a `RowsHead`, rows by key, and an `RowsEnd`; without the end the answer was cut off. All rows
of an answer are of one moment, and stand at the offset in the head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from millpond.protocol import Role
from millpond.topology import TaskId

from .catalog import OnDisk
from .directory import TaskDirectory
from .failures import FailureReason, QueryFailed
from .local import PIECE_BYTES, PIECE_ROWS, LocalReader
from .messages import RowsEnd, with_length

if TYPE_CHECKING:
    from aiohttp import web

    from millpond.state.look import Look

__all__ = ("HeldPartition", "RawStores", "RowsHead", "answer_rows", "answer_stores", "decode_frame", "encode_frame")

CONTENT_TYPE = "application/vnd.millpond.raw.v1"
_LONGEST_WRITE_S = 60.0


class HeldPartition(msgspec.Struct, frozen=True):
    """A store partition that a worker holds."""

    store: str
    partition: int
    role: Role
    offset: int | None
    """The changelog offset that its committed rows stand at; None while there are none that count."""


class RawStores(msgspec.Struct, frozen=True):
    """What a worker says of itself."""

    application: str
    worker: str
    stores: dict[str, int]
    """How many partitions each store has that is on disk and follows a changelog."""
    held: tuple[HeldPartition, ...]
    workers: dict[str, str]
    """Base URL of each worker that this one knows to live, by name."""


class RowsHead(msgspec.Struct, frozen=True, tag="rows"):
    """What comes before the rows."""

    role: Role
    offset: int
    metadata: bytes
    topic_id: str
    """Of the changelog; "" where the worker does not know it."""
    as_of_ms: int | None
    """When the rows were last known to have all of the changelog, in epoch ms; None where the worker does not know it."""


RawRow = tuple[bytes, bytes]
"""A full key, which begins with the partition, and a value."""

Frame = list[RawRow] | RowsHead | RowsEnd

_encoder = msgspec.msgpack.Encoder()
_frames: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode_frame(content: Frame) -> bytes:
    """Return a frame with its length before it."""
    return with_length(_encoder.encode(content))


def decode_frame(body: bytes) -> Frame:
    """Return what a frame's body says.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _frames.decode(body)


async def answer_stores(reader: LocalReader, directory: TaskDirectory) -> RawStores:
    """Return what this worker holds, and which other workers there are."""
    await directory.refresh()
    view = directory.view
    members = () if view is None else view.members
    addresses = {each.worker: directory.address(each.worker) for each in members}
    held = []
    for store in reader.catalog.on_disk:
        offset = reader.state.backend_of_store(store.name).offset
        for partition in range(store.partitions):
            holding = reader.state.holding(TaskId(store.subtopology, partition))
            if holding is not None:
                held.append(HeldPartition(store.name, partition, holding.role, offset(store.name, partition)))
    workers = {worker: address for worker, address in addresses.items() if address is not None}
    stores = {each.name: each.partitions for each in reader.catalog.on_disk}
    return RawStores(reader.catalog.application, reader.worker, stores, tuple(held), workers)


async def answer_rows(reader: LocalReader, executor: Executor, request: web.Request) -> web.StreamResponse:
    """Answer with all rows of a store partition.

    Raises:
        QueryFailed: this worker does not have it; nothing was answered then.
    """
    from aiohttp import web

    store, partition = _asked(reader, request)
    loop = asyncio.get_running_loop()
    scan = _Scan(reader, store, partition)
    head = await loop.run_in_executor(executor, scan.open)
    response = web.StreamResponse()
    response.content_type = CONTENT_TYPE
    try:
        await response.prepare(request)
        await response.write(encode_frame(head))
        end = RowsEnd()
        try:
            while piece := await loop.run_in_executor(executor, scan.piece):
                await asyncio.wait_for(response.write(encode_frame(piece)), _LONGEST_WRITE_S)
        except QueryFailed as failed:
            end = RowsEnd(failure=failed.failure)
        await response.write_eof(encode_frame(end))
    except (ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()
    finally:
        scan.close()
    return response


def _asked(reader: LocalReader, request: web.Request) -> tuple[OnDisk, int]:
    name, number = request.match_info["store"], request.match_info["partition"]
    found = next((each for each in reader.catalog.on_disk if each.name == name), None)
    if found is None:
        raise QueryFailed(
            FailureReason.DOES_NOT_EXIST,
            f"'{reader.catalog.application}' has no store '{name}' on disk with a changelog.",
        )
    if not number.isdecimal() or int(number) >= found.partitions:
        raise QueryFailed(
            FailureReason.DOES_NOT_EXIST,
            f"store '{name}' has {found.partitions} partitions, and no partition '{number}'.",
        )
    return found, int(number)


class _Scan:
    """The rows of a store partition, piece by piece, read in other threads than the loop."""

    def __init__(self, reader: LocalReader, store: OnDisk, partition: int) -> None:
        self._reader = reader
        self._store = store
        self._partition = partition
        self._backend: Any = reader.state.backend_of_store(store.name)
        self._generation = -1
        self._rows: Iterator[RawRow] = iter(())

    def open(self) -> RowsHead:
        """Begin.

        Raises:
            QueryFailed: this worker does not have the partition, or has no rows of it that count.
        """
        holding = self._reader.state.holding(TaskId(self._store.subtopology, self._partition))
        if holding is None:
            raise self._refused("does not have")
        try:
            with self._backend.shared():
                self._generation = self._backend.generation
                look: Look | None = self._backend.look(self._store.name, self._partition)
        except Exception as error:
            raise self._failed(error) from error
        if look is None:
            raise self._refused("has not begun to restore")
        self._rows = look.rows
        topic_id, as_of_ms, _ = look.provenance or ("", None, False)
        return RowsHead(holding.role, look.offset, look.metadata, topic_id, as_of_ms)

    def piece(self) -> list[RawRow]:
        """Return the next rows; none at the end.

        Raises:
            QueryFailed: reading failed, or the database was closed or opened anew.
        """
        try:
            with self._backend.shared():
                rows, size = [], 0
                for row in islice(self._rows, PIECE_ROWS):
                    rows.append(row)
                    size += len(row[0]) + len(row[1])
                    if size >= PIECE_BYTES:
                        break
                if self._backend.generation != self._generation:
                    raise self._refused("closed, while it was read,")
                return rows
        except QueryFailed:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Let go of the rows."""
        self._rows = iter(())

    def _refused(self, what: str) -> QueryFailed:
        where = f"partition {self._partition} of store '{self._store.name}'"
        return QueryFailed(
            FailureReason.NOT_PRESENT, f"worker '{self._reader.worker}' {what} {where}.", (self._partition,)
        )

    def _failed(self, error: Exception) -> QueryFailed:
        text = str(error) or type(error).__name__
        return QueryFailed(
            FailureReason.STORE_EXCEPTION, f"reading store '{self._store.name}' failed: {text}", (self._partition,)
        )
