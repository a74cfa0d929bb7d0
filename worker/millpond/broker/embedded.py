"""A real Apache Kafka broker as a context manager: one Java process, its own ports, its own data directory."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millpond.errors import BrokerError

from . import jars, java, settings, start_cache, watchdog

__all__ = ("EmbeddedBroker",)

_POLL_S = 0.02  # between two looks at a port or a process
_PORT_ATTEMPTS = 3  # another program may take a free port before the broker binds it
_LOG_LINES = 5  # of the log in an error
# An exception's first line or its cause's, or a line logged as an error; not a stack frame, not an INFO that quotes one.
_CAUSE = re.compile(r"(Caused by: |Exception in thread \S+ )?[\w.$]+(Exception|Error)\b|\S+ \S+ \[[^]]*\] ERROR ")
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
# One id for all: a data directory never meets another cluster's nodes.
_CLUSTER_ID = "bWlsbHBvbmQtYnJva2VyMQ"


class EmbeddedBroker:
    """A Kafka broker (KRaft, combined with its controller) that lives as long as the `with` block.

        with EmbeddedBroker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Jars and Java are found or fetched at the first start (`millpond.broker.jars`, `millpond.broker.java`). The process
    ends with the one it serves, even when that one is killed with SIGKILL. Durability is Kafka's default: a broker that
    is killed recovers what it had written, a machine that crashes may lose the last seconds.

    Args:
        data_dir: where topics, settings and log go; kept afterwards. A temporary directory by default, removed by
            `close()` unless the broker failed.
        host: address to listen on and to advertise.
        port: port for clients; 0 picks a free one at the first start and keeps it.
        properties: broker settings that win over millpond's (`millpond.broker.settings`).
        heap_mb: the Java heap's limit, in megabytes.
        jvm_options: further options for `java`.
        start_timeout: how long a start may take, downloads not counted.
        stop_timeout: how long a graceful stop may take before the process is killed.
        owner_pid: the process whose end ends the broker; this one by default.
    """

    def __init__(
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
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._failed = False

    @property
    def bootstrap_servers(self) -> str:
        """Host and port as Kafka's clients want them. Known from the first `start()` on, the same after a restart.

        Raises:
            BrokerError: before the first start.
        """
        if self._port == 0:
            message = "The broker has no port before it is started; enter its `with` block or call start()."
            raise BrokerError(message)
        return f"{self._host}:{self._port}"

    @property
    def data_dir(self) -> Path:
        """Directory of topics, settings and log.

        Raises:
            BrokerError: before the first start, when the directory is a temporary one.
        """
        if self._directory is None:
            message = "The broker has no data directory before it is started; enter its `with` block or call start()."
            raise BrokerError(message)
        return self._directory

    @property
    def log_file(self) -> Path:
        """What the broker wrote, all starts one after another."""
        return self.data_dir / "broker.log"

    @property
    def pid(self) -> int | None:
        """Process id of the broker, None when it does not run."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the broker and return once it answers a metadata request; on the ports and data it had before, if any.

        Raises:
            BrokerError: when it does not come up; the message names the log.
            JarError, JavaNotFound: when there is nothing to run.
        """
        if self.running:
            return self
        command = self._command()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="millpond-broker-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        may_move = not self._port
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            if may_move:
                self._port = _free_port(self._host)
            else:
                _require_free(self._host, self._port)
            self._controller_port = _free_port("127.0.0.1")
            try:
                self._launch(command)
                break
            except BrokerError as error:
                if "in use" not in str(error) or attempt == _PORT_ATTEMPTS:
                    self._failed = True
                    raise
        self._failed = False
        return self

    def stop(self) -> None:
        """Stop with SIGTERM, and with SIGKILL if that takes longer than `stop_timeout`. Data and port stay for `start()`."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(self._stop_timeout.total_seconds())
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap()

    def kill(self) -> None:
        """End the broker with SIGKILL, as a crash would. Data and port stay for `start()`."""
        if self._process is not None and self.running:
            self._process.kill()
        self._reap()

    def close(self) -> None:
        """`stop()`, then remove a temporary data directory, unless the last start failed and its log is wanted."""
        self.stop()
        if self._given_dir is None and self._directory is not None and not self._failed:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def detach(self) -> int:
        """Leave the running broker to `owner_pid` and the watchdog; this object can no longer stop it.

        Returns:
            The broker's process id.

        Raises:
            BrokerError: when it does not run.
        """
        pid = self.pid
        if pid is None or self._process is None or self._watchdog is None:
            message = "Only a running broker can be detached; call start() first."
            raise BrokerError(message)
        for process in (self._process, self._watchdog):
            process.returncode = 0  # or Popen complains that it is still running when it is collected
        self._process = self._watchdog = None
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
        """`java` with its options and class path; main class and arguments follow."""
        launcher, classpath = java.find_java(), jars.classpath("kafka")
        archive = start_cache.class_archive(launcher, classpath)
        return [
            str(launcher),
            f"-Xmx{self._heap_mb}m",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",  # a file mapped into memory: a busy disk would stop the whole JVM when it is written back
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
            *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []),
            *self._jvm_options,
            "-cp",
            classpath,
        ]

    def _launch(self, command: list[str]) -> None:
        data = self.data_dir / "data"
        server = self.data_dir / "server.properties"
        properties = settings.server_properties(self._host, self._port, self._controller_port, data)
        server.write_text(settings.render(properties | self._properties), encoding="utf-8")
        deadline = time.monotonic() + self._start_timeout.total_seconds()
        log_start = self._log_size()
        if not (data / "meta.properties").exists():
            classpath = command[-1]
            as_always = not self._properties.keys() & _STORED
            if not (as_always and start_cache.restore_formatted(data, classpath)):
                self._format(command, server)
                if as_always:
                    start_cache.keep_formatted(data, classpath)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, _KAFKA, str(server)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                # Ctrl-C in a terminal is for the application, which still needs its broker. Not a session of its own:
                # Linux schedules sessions as groups, and on a busy machine one may get no time for many seconds.
                process_group=0,
            )
        self._watch()
        try:
            self._await_ready(deadline, log_start)
        except BaseException:
            self.kill()
            raise

    def _format(self, command: list[str], server: Path) -> None:
        """Write the metadata a KRaft node refuses to start without."""
        what = "The embedded broker's data directory could not be formatted"
        log_start = self._log_size()
        with self.log_file.open("ab") as log:
            try:
                done = subprocess.run(
                    [*command, _STORAGE_TOOL, "format", "--cluster-id", _CLUSTER_ID, "--config", str(server)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=self._start_timeout.total_seconds(),
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise BrokerError(self._failure(f"{what} within {error.timeout:g} s", log_start)) from error
        if done.returncode != 0:
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
        """Wait until clients get the broker's own address as the answer to a metadata request."""
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
        """Raise when there is nothing to wait for any more."""
        if not self.running:
            raise BrokerError(self._failure("The embedded broker ended while it was starting", log_start))
        if time.monotonic() > deadline:
            seconds = self._start_timeout.total_seconds()
            raise BrokerError(self._failure(f"The embedded broker was not ready within {seconds:g} s", log_start))

    def _log_size(self) -> int:
        return self.log_file.stat().st_size if self.log_file.exists() else 0

    def _failure(self, what: str, log_start: int) -> str:
        """One sentence with the log's path, then the log's last lines."""
        with self.log_file.open("rb") as log:
            log.seek(log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return f"{what}; its log is {self.log_file}:\n" + "\n".join(f"    {line}" for line in _causes(lines))

    def _reap(self) -> None:
        """Wait for what was told to end, and for its watchdog, which ends by itself once the broker is gone."""
        for process in (self._process, self._watchdog):
            if process is not None:
                process.wait()
        self._process = self._watchdog = None


def _causes(log: Sequence[str]) -> list[str]:
    """The lines of a log that say what went wrong: the first exceptions and errors, or else its end."""
    told = [line.strip() for line in log if _CAUSE.match(line)]
    return list(dict.fromkeys(told))[:_LOG_LINES] or [line for line in log if line.strip()][-_LOG_LINES:]


def _require_free(host: str, port: int) -> None:
    """Raise `BrokerError` when another program listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as Java does: connections that linger do not count
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
