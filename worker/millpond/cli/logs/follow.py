"""Logs that are followed: one thread for each container, and new ones for containers and pods that replace others."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from millpond.cli.cluster.failures import ClusterError, Forbidden

from .containers import Container
from .lines import Line, Printer, parsed

__all__ = ("Follower", "OpenLog")

_POLL_S = 2.0


class OpenLog(Protocol):
    """Opens the log of a container."""

    def __call__(self, worker: str, *, since_seconds: int | None) -> contextlib.AbstractContextManager[Iterator[bytes]]:
        """Yield the lines with their times, and wait for further ones.

        Args:
            worker: the pod.
            since_seconds: the age of the oldest line; None for all.

        Raises:
            ClusterError: there is no log.
        """


class Follower:
    """Follows the logs of workers.

    Args:
        containers: returns the containers to follow now, by worker.
        open_log: opens a log.
        printer: prints lines.
        since_seconds: the age of the oldest line of the containers that run at the beginning; None for all.
    """

    def __init__(
        self,
        containers: Callable[[], Mapping[str, Container]],
        open_log: OpenLog,
        printer: Printer,
        since_seconds: int | None,
    ) -> None:
        self._containers = containers
        self._open_log = open_log
        self._printer = printer
        self._since_seconds = since_seconds
        self._lines: queue.SimpleQueue[tuple[str, Line | Forbidden]] = queue.SimpleQueue()
        self._streams: dict[str, _Stream] = {}
        self._ended: set[str] = set()
        """Instances that have ended and whose log was read to its end."""
        self._noted: dict[str, str] = {}
        self._latest: dict[str, tuple[str, float]] = {}
        """The time of the last line of each pod, and when it was read, in monotonic seconds."""
        self._first = True

    def run(self, *, stop: Callable[[], bool] = lambda: False) -> None:
        """Print lines until Ctrl-C, or until `stop` returns True.

        Raises:
            ClusterError: the cluster does not answer, or the user may not read logs.
        """
        try:
            while not stop():
                self._look()
                self._first = False
                self._print_for(_POLL_S, stop)
        finally:
            for stream in self._streams.values():
                stream.close()

    def _look(self) -> None:
        """Start to follow what is new, and end what is not to be followed any more."""
        now = self._containers()
        for worker, stream in list(self._streams.items()):
            if worker not in now:
                stream.close()
                del self._streams[worker]
            elif not stream.alive:
                if not now[worker].running or stream.container.instance != now[worker].instance:
                    self._ended.add(stream.container.instance)
                del self._streams[worker]
        for worker, container in now.items():
            if worker in self._streams or container.instance in self._ended:
                continue
            if not container.has_log:
                self._note(worker, f"no log yet: {container.waits_for}")
                continue
            if container.crash:
                self._note(worker, f"the container was started again after {container.crash}")
            elif not container.running:
                self._note(worker, f"the container has ended: {container.waits_for}")
                self._ended.add(container.instance)
            self._streams[worker] = _Stream(container, self._open_log, self._since(container), self._lines)

    def _since(self, container: Container) -> int | None:
        latest = self._latest.get(container.uid)
        if latest is not None:
            return int(time.monotonic() - latest[1]) + 2
        return self._since_seconds if self._first else None  # all lines of a pod that appears later are new

    def _note(self, worker: str, text: str) -> None:
        if self._noted.get(worker) != text:
            self._noted[worker] = text
            self._printer.note(worker, text)

    def _print_for(self, seconds: float, stop: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not stop():
            try:
                uid, line = self._lines.get(timeout=min(left, 0.2))
            except queue.Empty:
                continue
            if isinstance(line, Forbidden):
                raise line
            latest = self._latest.get(uid)
            if latest is not None and line.time <= latest[0]:
                continue  # read before the connection broke
            self._latest[uid] = (line.time, time.monotonic())
            self._printer.line(line)


class _Stream:
    """The log of one container, read by a thread."""

    def __init__(
        self,
        container: Container,
        open_log: OpenLog,
        since: int | None,
        lines: queue.SimpleQueue[tuple[str, Line | Forbidden]],
    ) -> None:
        self.container = container
        self._lines = lines
        self._closed = False
        self._since = since
        self._open_log = open_log
        self._thread = threading.Thread(target=self._read, name=f"log of {container.worker}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether more lines may come."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Ignore further lines. The thread ends with the next one, or with the process."""
        self._closed = True

    def _read(self) -> None:
        try:
            with self._open_log(self.container.worker, since_seconds=self._since) as raw:
                for each in raw:
                    if self._closed:
                        return
                    self._lines.put((self.container.uid, parsed(self.container.worker, each)))
        except Forbidden as error:
            self._lines.put((self.container.uid, error))
        except ClusterError:  # the pod may be gone, or its node may not answer: the next look tries again
            pass
