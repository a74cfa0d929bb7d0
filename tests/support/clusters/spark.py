"""A real Spark cluster: a master and a worker, with executors in separate processes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from millpond.broker.java import find_jre
from tests.support.broker import free_port

__all__ = ("SparkCluster", "spark_cluster")

_START_S = 120.0


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster."""

    url: str
    """The value of `--master`."""
    log: Path
    worker: int
    """The worker's process id."""

    def executors(self) -> list[int]:
        """Return the process ids of the running executors, oldest first."""
        return sorted(pid for pid in _children(self.worker) if b"ExecutorBackend" in _command(pid))


@contextmanager
def spark_cluster(directory: Path, environment: Mapping[str, str]) -> Iterator[SparkCluster]:
    """Run a master and a worker with two cores.

    Args:
        directory: the directory of logs and scratch files.
        environment: further variables for all processes.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    own = {
        **environment,
        "JAVA_HOME": str(find_jre()),
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_LOCAL_DIRS": str(directory / "scratch"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    log = directory / "spark.log"
    directory.mkdir(parents=True, exist_ok=True)
    package = "org.apache.spark.deploy"
    master = [f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [
        f"{package}.worker.Worker",
        "--host",
        "127.0.0.1",
        "--webui-port",
        "0",
        "--cores",
        "2",
        "--memory",
        "2g",
        url,
    ]
    with ExitStack() as running:
        out = running.enter_context(log.open("wb"))
        processes = []
        for arguments, said in (
            (master, "Master: I have been elected leader"),
            (worker, "Successfully registered with master"),
        ):
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *arguments],
                env=own, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
            running.callback(_end, process)
            processes.append(process)
            _await(log, said, process)
        yield SparkCluster(url, log, processes[1].pid)


def _await(log: Path, said: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while said not in (text := log.read_text(errors="replace")):
        assert process.poll() is None, f"Spark's process ended before it logged {said!r}:\n{text}"
        assert time.monotonic() < deadline, f"Spark's process did not log {said!r}:\n{text}"
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process by SIGTERM, so that it stops its executors."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = status.read_text().splitlines()
        except OSError:  # it has ended meanwhile
            continue
        if f"PPid:\t{parent}" in lines:
            found.append(int(status.parent.name))
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
