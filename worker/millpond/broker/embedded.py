"""A real Apache Kafka broker as a context manager: one Java process, its own ports, its own data directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millpond.errors import BrokerError
from millpond.forks import opened_here

from . import jars, java, settings, start_cache, watchdog
from .endings import CAUSE, end_of_kafka

__all__ = ("EmbeddedBroker",)

_LOCK_TIMEOUT_S = 10.0  # a broker whose owner was killed ends within seconds
_POLL_S = 0.02  # between two checks of a port or a process
_PORT_ATTEMPTS = 3  # another program may take a free port before the broker binds it
_LOG_LINES = 5  # log lines in an error message
_LOG_END_BYTES = 256 * 1024  # read of the log of a broker that has ended
_ARCHIVE_OPTION = "-XX:SharedArchiveFile="
_KAFKA = "kafka.Kafka"
_STORAGE_TOOL = "kafka.tools.StorageTool"
# Settings that decide what the storage tool writes, and where.
_STORED = frozenset(
    {
        "controller.quorum.bootstrap.servers",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    }
)
# One id for all brokers: a data directory is never used with nodes of another cluster.
_CLUSTER_ID = "bWlsbHBvbmQtYnJva2VyMQ"


class EmbeddedBroker:
    """A Kafka broker (KRaft, combined with its controller) that runs as long as the `with` block.

        with EmbeddedBroker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Jars and Java are found or downloaded at the first start (`millpond.broker.jars`, `millpond.broker.java`). The
    broker ends when its owner process ends, even with SIGKILL. Durability is Kafka's default: a killed broker recovers
    the records it had written; a machine that crashes may lose those of the last seconds.

    Args:
        data_dir: directory of topics, settings and log; kept after `close()`. The default is a temporary directory,
            which `close()` removes unless the broker failed.
        host: address to listen on and to advertise.
        port: port for clients; 0 picks a free one at the first start and keeps it. If a broker has used `data_dir`
            before, it is that one's, unless another program listens there now.
        properties: broker settings that override millpond's (`millpond.broker.settings`).
        heap_mb: maximum size of the Java heap, in megabytes.
        jvm_options: additional options for `java`.
        start_timeout: how long a start may take, without downloads.
        stop_timeout: how long a graceful stop may take before the process is killed.
        owner_pid: the owner process, whose end stops the broker; the default is this process.
        on_step: gets what a start waits for next, such as `starting Kafka`.
    """

    def __init__(  # noqa: PLR0913 - keyword options of the public API
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        jvm_options: Sequence[str] = (),
        start_timeout: timedelta = timedelta(seconds=90),
        stop_timeout: timedelta = timedelta(seconds=20),
        owner_pid: int | None = None,
        on_step: Callable[[str], None] = lambda _step: None,
    ) -> None:
        self._given_dir = None if data_dir is None else Path(data_dir).absolute()
        self._directory: Path | None = self._given_dir
        self._host = host
        self._port = port
        self._controller_port = 0
        self._properties = dict(properties or {})
        self._heap_mb = heap_mb
        self._jvm_options = tuple(jvm_options)
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._owner_pid = os.getpid() if owner_pid is None else owner_pid
        self._on_step = on_step
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._failed = False
        self._crashed = False
        self._lock: BinaryIO | None = None
        self._log_start = 0  # the size of the log before the last start

    @property
    def bootstrap_servers(self) -> str:
        """The host and port for Kafka clients. They are known after the first `start()`; a restart keeps them.

        Raises:
            BrokerError: before the first start.
        """
        if self._port == 0:
            message = "The broker has no port before it is started; enter its `with` block or call start()."
            raise BrokerError(message)
        return f"{self._host}:{self._port}"

    @property
    def data_dir(self) -> Path:
        """The directory of topics, settings and log.

        Raises:
            BrokerError: before the first start, if the directory is a temporary one.
        """
        if self._directory is None:
            message = "The broker has no data directory before it is started; enter its `with` block or call start()."
            raise BrokerError(message)
        return self._directory

    @property
    def log_file(self) -> Path:
        """The log of the broker, with all its starts."""
        return self.data_dir / "broker.log"

    @property
    def pid(self) -> int | None:
        """The process id of the broker; None while it does not run."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._process is not None and self._process.poll() is None

    def unexpected_end(self) -> str | None:
        """Return how the broker's process has ended by itself, and why, as a sentence without its full stop.

        None while it runs, before the start, and after `stop()`. The reason is from the end of `log_file`.
        """
        if self._process is None or self.running:
            return None
        log: list[str] = []
        with contextlib.suppress(OSError), self.log_file.open("rb") as file:
            file.seek(max(self._log_start, self._log_size() - _LOG_END_BYTES))
            log = file.read().decode(errors="replace").splitlines()
        return end_of_kafka(self._process.returncode, log, self.data_dir)

    def start(self) -> Self:
        """Start the broker and return when it answers a metadata request. A restart uses the same port and data.

        Raises:
            BrokerError: the broker did not become ready in time, or ended; the message names the log.
            JarError: a jar is missing and cannot be downloaded.
            JavaNotFound: no suitable Java is installed.
        """
        if self.running:
            return self
        command = self._command()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="millpond-broker-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        port_is_free_choice = not self._port
        repaired = False
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self._release_directory)
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                self._acquire_directory()
                if port_is_free_choice:
                    self._port = (self._earlier_port() if attempt == 1 else None) or _free_port(self._host)
                else:
                    _require_free(self._host, self._port)
                self._controller_port = _free_port("127.0.0.1")
                try:
                    self._launch(command)
                    break
                except BrokerError as error:
                    again = "in use" in str(error)
                    if not again and not repaired and (repaired := self._remove_damaged_files(command)):
                        again, command = True, self._command()
                    if not again or attempt == _PORT_ATTEMPTS:
                        self._failed = True
                        raise
            on_failure.pop_all()
        self._failed = False
        return self

    def stop(self) -> None:
        """Stop the broker with SIGTERM, and with SIGKILL after `stop_timeout`. Data and port stay for `start()`."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(self._stop_timeout.total_seconds())
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Kill the broker with SIGKILL, like a crash. Data and port stay for `start()`."""
        if self._process is not None and self.running:
            self._process.kill()
        self._reap()

    def close(self) -> None:
        """Stop the broker and remove a temporary data directory; after a failed start it is kept for its log."""
        self.stop()
        if self._given_dir is None and self._directory is not None and not self._failed:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def detach(self) -> int:
        """Leave the running broker to its watchdog, which stops it with `owner_pid`. This object can no longer do so.

        Returns:
            The broker's process id.

        Raises:
            BrokerError: the broker does not run.
        """
        pid = self.pid
        if pid is None or self._process is None or self._watchdog is None:
            message = "Only a running broker can be detached; call start() first."
            raise BrokerError(message)
        for process in (self._process, self._watchdog):
            process.returncode = 0  # else Popen warns about a running process when it is garbage-collected
        self._process = self._watchdog = None
        self._release_directory()
        return pid

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _command(self) -> list[str]:
        """Return the command `java` with its options and class path, without main class and arguments."""
        launcher, classpath = java.find_java(), jars.classpath("kafka")
        archive = start_cache.class_archive(launcher, classpath)
        return [
            str(launcher),
            f"-Xmx{self._heap_mb}m",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",  # it maps a file into memory: writing it back to a busy disk would pause the JVM
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
            *([f"{_ARCHIVE_OPTION}{archive}"] if archive.exists() else []),
            *self._jvm_options,
            "-cp",
            classpath,
        ]

    def _acquire_directory(self) -> None:
        """Lock the data directory for this object and its broker.

        Kafka's own lock comes later than the metadata, which two brokers that start at the same time damage.

        Raises:
            BrokerError: another broker has it.
        """
        if self._lock is not None:
            return
        lock = opened_here(lambda: (self.data_dir / "broker.lock").open("wb"))
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if time.monotonic() > deadline:
                    lock.close()
                    raise BrokerError(
                        f"Another broker uses the data directory {self.data_dir}: stop it, or choose another directory."
                    ) from error
                time.sleep(_POLL_S)
            else:
                self._lock = lock
                return

    def _release_directory(self) -> None:
        """Release the lock; the process of the broker, if it runs, still has it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _remove_damaged_files(self, command: Sequence[str]) -> bool:
        """Remove what is damaged of the cached files that a failed start has used; return whether something was."""
        removed = jars.remove_damaged("kafka")
        if self._crashed:
            for each in command:
                if each.startswith(_ARCHIVE_OPTION):
                    with contextlib.suppress(OSError):
                        Path(each.removeprefix(_ARCHIVE_OPTION)).unlink()
                        removed.append("the archive of Kafka's classes")
        if removed:
            self._on_step(f"starting again without damaged files of {jars.cache_directory()}: {', '.join(removed)}")
        return bool(removed)

    def _earlier_port(self) -> int | None:
        """Return the port that the last broker of the data directory had, if it is free."""
        with contextlib.suppress(OSError, BrokerError):
            port = settings.port_of((self.data_dir / "server.properties").read_text(encoding="utf-8"), self._host)
            if port is not None:
                _require_free(self._host, port)
                return port
        return None

    def _launch(self, command: list[str]) -> None:
        data = self.data_dir / "data"
        server = self.data_dir / "server.properties"
        properties = settings.server_properties(self._host, self._port, self._controller_port, data)
        server.write_text(settings.render(properties | self._properties), encoding="utf-8")
        deadline = time.monotonic() + self._start_timeout.total_seconds()
        self._log_start = log_start = self._log_size()
        if not (data / "meta.properties").exists():
            classpath = command[-1]
            cacheable = not self._properties.keys() & _STORED
            if not (cacheable and start_cache.restore_formatted(data, classpath)):
                self._on_step("formatting Kafka's data directory (only once)")
                self._format(command, server)
                if cacheable:
                    start_cache.keep_formatted(data, classpath)
        self._on_step("starting Kafka")
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, _KAFKA, str(server)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                # Ctrl-C in a terminal must reach only the application, which still needs its broker. Not a new session:
                # Linux schedules sessions as groups, and on a busy machine one may get no CPU for many seconds.
                process_group=0,
                pass_fds=() if self._lock is None else (self._lock.fileno(),),  # locked until Java has ended
            )
        self._watch()
        try:
            self._await_ready(deadline, log_start)
        except BaseException:
            self.kill()
            raise

    def _format(self, command: list[str], server: Path) -> None:
        """Write the metadata that a KRaft node needs to start."""
        what = "The embedded broker's data directory could not be formatted"
        # An archive is of the broker's classes, and writing one takes seconds.
        tool = [each for each in command if not each.startswith("-XX:ArchiveClassesAtExit=")]
        log_start = self._log_size()
        with self.log_file.open("ab") as log:
            try:
                done = subprocess.run(
                    [*tool, _STORAGE_TOOL, "format", "--cluster-id", _CLUSTER_ID, "--config", str(server)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=self._start_timeout.total_seconds(),
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise BrokerError(self._failure(f"{what} within {error.timeout:g} s", log_start)) from error
        if done.returncode != 0:
            self._crashed = done.returncode == -signal.SIGABRT
            raise BrokerError(self._failure(what, log_start))

    def _watch(self) -> None:
        assert self._process is not None
        arguments = [str(self._owner_pid), str(self._process.pid)]
        if self._given_dir is None:
            arguments.append(str(self.data_dir))
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _await_ready(self, deadline: float, log_start: int) -> None:
        """Wait until a metadata request returns the broker's own address."""
        while not _accepts(self._host, self._port):
            self._check_start(deadline, log_start)
            time.sleep(_POLL_S)
        admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "log_level": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
            }
        )
        while True:
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=1).brokers:
                    return
            self._check_start(deadline, log_start)

    def _check_start(self, deadline: float, log_start: int) -> None:
        """Raise BrokerError if the broker has ended or the deadline has passed."""
        if not self.running:
            self._crashed = self._process is not None and self._process.returncode == -signal.SIGABRT
            raise BrokerError(self._failure("The embedded broker ended while it was starting", log_start))
        if time.monotonic() > deadline:
            seconds = self._start_timeout.total_seconds()
            raise BrokerError(self._failure(f"The embedded broker was not ready within {seconds:g} s", log_start))

    def _log_size(self) -> int:
        return self.log_file.stat().st_size if self.log_file.exists() else 0

    def _failure(self, what: str, log_start: int) -> str:
        """Return an error message: a sentence with the path of the log, then its relevant lines."""
        with self.log_file.open("rb") as log:
            log.seek(log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return f"{what}; its log is {self.log_file}:\n" + "\n".join(f"    {line}" for line in _error_lines(lines))

    def _reap(self) -> None:
        """Wait for the broker process to end, and for its watchdog, which then ends by itself."""
        for process in (self._process, self._watchdog):
            if process is not None:
                process.wait()
        self._process = self._watchdog = None
        self._release_directory()


def _error_lines(log: Sequence[str]) -> list[str]:
    """Return the log lines that explain a failure: the first exceptions and errors, or else the last lines."""
    errors = [line.strip() for line in log if CAUSE.match(line)]
    return list(dict.fromkeys(errors))[:_LOG_LINES] or [line for line in log if line.strip()][-_LOG_LINES:]


def _require_free(host: str, port: int) -> None:
    """Raise `BrokerError` when another program listens on the port."""
    with socket.socket() as probe:
        # As Java does: connections in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            message = f"The embedded broker cannot listen on {host}:{port} ({error.strerror}); choose another port."
            raise BrokerError(message) from error


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
