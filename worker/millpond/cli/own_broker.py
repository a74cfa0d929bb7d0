"""The Kafka broker of a session: its start, and the error of the session when it has ended by itself."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.session import Session
from millpond.errors import BrokerError, MillpondError

if TYPE_CHECKING:
    from millpond.broker.embedded import EmbeddedBroker

__all__ = ("POLL_S", "OwnBroker", "own_broker")

log: logging.Logger = logging.getLogger("millpond.cli")

POLL_S = 0.25
"""The time between two looks whether the broker still runs, in seconds."""
_WAITS = ("starting", "formatting", "stopping")
"""How steps of the broker begin that take a while; others are results."""


class OwnBroker:
    """The broker of a session.

    Args:
        broker: the running broker.
        arguments: the arguments of `millpond dev` that started the session.
        kept: the directory in which topics and state are kept; None if they are deleted with the session.

    Attributes:
        servers: its host and port.
        end: how it has ended by itself, as the begin of a sentence; empty while it runs.
    """

    def __init__(self, broker: EmbeddedBroker, arguments: Sequence[str], kept: Path | None) -> None:
        self._broker = broker
        self._arguments = arguments
        self._kept = kept
        self._failure: BrokerError | None = None
        self._lock = threading.Lock()
        self.servers: str = broker.bootstrap_servers
        self.end: str = ""

    def failure(self) -> BrokerError | None:
        """Return the error with which the session ends, with its cure; None while the broker runs."""
        with self._lock:
            if self._failure is None and (end := self._broker.unexpected_end()) is not None:
                self.end = end
                self._failure = BrokerError(ended_text(end, self._log(), self._arguments, self._kept))
            return self._failure

    def _log(self) -> Path:
        """Return the path of its log, which stays when the files of the session are deleted."""
        path = self._broker.log_file
        if self._kept is None:
            # A rename needs no space, which may be the reason of the end.
            moved = Path(tempfile.gettempdir()) / f"millpond-kafka-{os.getpid()}.log"
            with contextlib.suppress(OSError):
                path = path.rename(moved)
        return path

    @contextlib.contextmanager
    def watched(self, ended: Callable[[], None]) -> Iterator[None]:
        """Log the end of the broker, and call a function, in a thread, if it ends while the block runs."""
        done = threading.Event()

        def watch() -> None:
            while self.failure() is None:
                if done.wait(POLL_S):
                    return
            log.error("%s: stopping the worker", self.end)
            ended()

        thread = threading.Thread(target=watch, name="broker-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def ended_text(end: str, log_file: Path, arguments: Sequence[str], kept: Path | None) -> str:
    """Return the error of a session whose broker has ended.

    Args:
        end: how it has ended, as the begin of a sentence.
        log_file: its log.
        arguments: the arguments of `millpond dev` that started the session.
        kept: the directory in which topics and state are kept; None if they are deleted with the session.
    """
    command = f"`{shlex.join(['millpond', 'dev', *arguments])}`"
    cure = (
        f"Topics and state of this session are deleted: {command} starts a new one, and --data-dir DIR keeps them."
        if kept is None
        else f"Topics and state are kept in {kept}: {command} continues with them after the last commit."
    )
    return f"{end}. The log of Kafka is {log_file}. {cure}"


@contextlib.contextmanager
def own_broker(
    session: Session, directory: Path, port: int | None, arguments: Sequence[str], kept: Path | None
) -> Iterator[OwnBroker]:
    """Run a broker while the block runs, and show what its start waits for.

    Args:
        session: the session of the command line.
        directory: the directory of its topics, settings and log.
        port: its port; None for that of the last session of the directory, or a free one.
        arguments: the arguments of `millpond dev`.
        kept: the directory in which topics and state are kept; None if they are deleted with the session.

    Raises:
        BrokerError: the broker did not start, or it ended while the block ran.
        JarError, JavaNotFound: see `millpond.broker.quick.quick_broker`.
    """
    from millpond.broker.quick import quick_broker

    status = session.err.status("")
    shown = False

    def tell(step: str) -> None:
        nonlocal shown
        if session.live and step.startswith(_WAITS):
            status.update(step)
            if not shown:
                status.start()
            shown = True
        else:
            log.info("%s", step)

    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(quick_broker(directory, tell, port=port or 0))
        finally:
            status.stop()
            shown = False
        own = OwnBroker(broker, arguments, kept)
        try:
            yield own
        except MillpondError as error:
            # What fails without Kafka fails since Kafka has ended.
            failure = own.failure()
            if failure is None or error is failure:
                raise
            raise failure from error
        if (failure := own.failure()) is not None:
            raise failure
    status.stop()
