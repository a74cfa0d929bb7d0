"""Raw rows of the stores on disk that a worker holds, of active tasks and copies, for tools that inspect state.

`GET /v1/raw` lists the store partitions of this worker, and the other workers. The answer to
`GET /v1/raw/{store}/{partition}` consists of frames as between workers: a `RowsHead`, rows by key, and a `RowsEnd`.
An answer without a `RowsEnd` was cut off. All rows of an answer are of one moment, at the offset in the head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from millpond.protocol import Role
from millpond.texts import encoded
from millpond.topology import TaskId

from .catalog import OnDisk
from .directory import TaskDirectory
from .failures import FailureReason, QueryFailed
from .local import PIECE_BYTES, PIECE_ROWS, LocalReader
from .messages import RowsEnd, with_length

if TYPE_CHECKING:
    from aiohttp import web

    from millpond.state.rocksdb.partition_view import PartitionView

__all__ = ("HeldPartition", "RawStores", "RowsHead", "answer_rows", "answer_stores", "decode_frame", "encode_frame")

CONTENT_TYPE = "application/vnd.millpond.raw.v1"
_WRITE_TIMEOUT_S = 60.0


class HeldPartition(msgspec.Struct, frozen=True):
    """A store partition that a worker holds."""

    store: str
    partition: int
    role: Role
    offset: int | None
    """The changelog offset of its committed rows; None while it has no valid rows."""


class RawStores(msgspec.Struct, frozen=True):
    """The stores on disk of an application, and the partitions that one worker holds."""

    application: str
    worker: str
    stores: dict[str, int]
    """Partition count of each store on disk that has a changelog, by name."""
    held: tuple[HeldPartition, ...]
    workers: dict[str, str]
    """Base URL of each live worker that this worker knows, by name."""


class RowsHead(msgspec.Struct, frozen=True, tag="rows"):
    """The first frame of an answer."""

    role: Role
    offset: int
    metadata: bytes
    topic_id: str
    """Topic id of the changelog; "" if the worker does not know it."""
    as_of_ms: int | None
    """When the rows were last known to be complete, in epoch ms; None if the worker does not know it."""


RawRow = tuple[bytes, bytes]
"""A key in store format, which begins with the partition, and a value."""

Frame = list[RawRow] | RowsHead | RowsEnd

_encoder = msgspec.msgpack.Encoder()
_frames: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode_frame(content: Frame) -> bytes:
    """Encode a frame, preceded by its length."""
    return with_length(encoded(content, _encoder))


def decode_frame(body: bytes) -> Frame:
    """Decode the body of a frame.

    Raises:
        msgspec.DecodeError: the bytes are not a frame.
    """
    return _frames.decode(body)


async def answer_stores(reader: LocalReader, directory: TaskDirectory) -> RawStores:
    """Return the store partitions of this worker, and the other workers."""
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
    """Send all rows of a store partition.

    Raises:
        QueryFailed: this worker does not have the partition. No part of the answer was sent.
    """
    from aiohttp import web

    store, partition = _requested_partition(reader, request)
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
                async with asyncio.timeout(_WRITE_TIMEOUT_S):
                    await response.write(encode_frame(piece))
        except QueryFailed as failed:
            end = RowsEnd(failure=failed.failure)
        await response.write_eof(encode_frame(end))
    except (ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()
    finally:
        scan.close()
    return response


def _requested_partition(reader: LocalReader, request: web.Request) -> tuple[OnDisk, int]:
    name, number = request.match_info["store"], request.match_info["partition"]
    found = next((each for each in reader.catalog.on_disk if each.name == name), None)
    if found is None:
        raise QueryFailed(
            FailureReason.DOES_NOT_EXIST,
            f"application '{reader.catalog.application}' has no store '{name}' on disk with a changelog.",
        )
    if not number.isdecimal() or int(number) >= found.partitions:
        raise QueryFailed(
            FailureReason.DOES_NOT_EXIST,
            f"store '{name}' has no partition '{number}'; its partitions are 0 to {found.partitions - 1}.",
        )
    return found, int(number)


class _Scan:
    """The reader of all rows of a store partition, piece by piece, in other threads than the worker's loop."""

    def __init__(self, reader: LocalReader, store: OnDisk, partition: int) -> None:
        self._reader = reader
        self._store = store
        self._partition = partition
        self._backend: Any = reader.state.backend_of_store(store.name)
        self._generation = -1
        self._rows: Iterator[RawRow] = iter(())

    def open(self) -> RowsHead:
        """Open the iterator and return the first frame.

        Raises:
            QueryFailed: this worker does not have the partition, or has no valid rows of it.
        """
        holding = self._reader.state.holding(TaskId(self._store.subtopology, self._partition))
        if holding is None:
            raise self._not_present("does not have")
        try:
            with self._backend.shared():
                self._generation = self._backend.generation
                view: PartitionView | None = self._backend.view(self._store.name, self._partition)
        except Exception as error:
            raise self._failed(error) from error
        if view is None:
            raise self._not_present("has not started to restore")
        self._rows = view.rows
        topic_id, as_of_ms, _ = view.provenance or ("", None, False)
        return RowsHead(holding.role, view.offset, view.metadata, topic_id, as_of_ms)

    def piece(self) -> list[RawRow]:
        """Return the next rows; an empty list at the end.

        Raises:
            QueryFailed: reading failed, or the database was closed or reopened.
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
                    raise self._not_present("closed", " during the read")
                return rows
        except QueryFailed:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the iterator."""
        self._rows = iter(())

    def _not_present(self, verb: str, when: str = "") -> QueryFailed:
        where = f"partition {self._partition} of store '{self._store.name}'"
        return QueryFailed(
            FailureReason.NOT_PRESENT, f"worker '{self._reader.worker}' {verb} {where}{when}.", (self._partition,)
        )

    def _failed(self, error: Exception) -> QueryFailed:
        text = str(error) or type(error).__name__
        return QueryFailed(
            FailureReason.STORE_EXCEPTION, f"cannot read store '{self._store.name}': {text}", (self._partition,)
        )
