"""The rows of running workers, read over their query interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from millpond.errors import MillpondError
from millpond.queries.failures import FailureReason, QueryFailed
from millpond.queries.messages import RowsEnd
from millpond.queries.raw_rows import RawStores, RowsHead, decode_frame
from millpond.queries.transport import Transport

from .sources import HeldStore, NotReadable, Row, StoreRows

__all__ = ("RunningWorker", "find_workers")

_TIMEOUT_S = 10.0


class RunningWorker:
    """A running worker, as a source."""

    def __init__(self, transport: Transport, stores: RawStores) -> None:
        self.stores = stores
        self._transport = transport

    @property
    def name(self) -> str:
        """The name of the worker."""
        return self.stores.worker

    def held(self) -> list[HeldStore]:
        """See `Source`."""
        found = [HeldStore(each.store, each.partition, each.role.value, each.offset) for each in self.stores.held]
        return sorted(found, key=lambda each: (each.store, each.partition))

    @contextmanager
    def open(self, store: str, partition: int) -> Iterator[StoreRows]:
        """See `Source`."""
        frames = self._transport.frames(("raw", store, str(partition)), {}, _TIMEOUT_S)
        with closing(frames):
            try:
                head = decode_frame(next(frames, b""))
            except (QueryFailed, msgspec.DecodeError) as error:
                raise NotReadable(_sentence(error)) from error
            if not isinstance(head, RowsHead):
                raise NotReadable(
                    f"cannot decode the answer of worker '{self.name}': it may be another version of millpond"
                )
            yield StoreRows(head.offset, head.metadata, head.topic_id, head.as_of_ms, self._rows(frames))

    def _rows(self, frames: Iterator[bytes]) -> Iterator[Row]:
        for body in frames:
            frame = decode_frame(body)
            if isinstance(frame, RowsEnd):
                if frame.failure is not None:
                    raise NotReadable(frame.failure.message)
                return
            assert isinstance(frame, list)
            yield from frame
        raise NotReadable(f"the answer of worker '{self.name}' was cut off")

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


def find_workers(
    urls: tuple[str, ...], application: str, *, token_file: Path | None = None, ca_file: Path | None = None
) -> list[RunningWorker]:
    """Return the workers of an application: those at the URLs, and the workers that these know.

    Args:
        urls: URLs of one or more workers.
        application: id of the application.
        token_file: file with the token for the workers.
        ca_file: certificate authorities to trust (PEM).

    Raises:
        QueryFailed: a worker does not answer.
        MillpondError: a worker belongs to another application.
        ConfigError: a URL or a file cannot be used.
    """
    found: dict[str, RunningWorker] = {}
    remaining = list(urls)
    asked: set[str] = set()
    try:
        while remaining:
            url = remaining.pop(0).rstrip("/")
            if url in asked:
                continue
            asked.add(url)
            transport = Transport((url,), token_file=token_file, ca_file=ca_file)
            try:
                stores = msgspec.convert(transport.one(("raw",), {}, _TIMEOUT_S), RawStores)
            except BaseException as error:
                transport.close()
                if isinstance(error, msgspec.ValidationError):
                    raise MillpondError(
                        f"{url} is not a worker of this version of millpond: check the URL and the worker's version."
                    ) from error
                raise
            if stores.application != application or stores.worker in found:
                transport.close()
                if stores.application != application:
                    raise MillpondError(
                        f"the worker at {url} belongs to application '{stores.application}', not to '{application}': "
                        "check --url and --application-id."
                    )
                continue
            found[stores.worker] = RunningWorker(transport, stores)
            remaining += [each for name, each in stores.workers.items() if name not in found]
    except BaseException:
        for worker in found.values():
            worker.close()
        raise
    return [found[name] for name in sorted(found)]


def _sentence(error: Any) -> str:
    if isinstance(error, QueryFailed):
        if error.reason is FailureReason.NOT_PRESENT and error.partitions:
            return f"{str(error).rstrip('.')}: the task has moved; retry"
        return str(error).rstrip(".")
    return f"cannot decode the worker's answer ({error})"
