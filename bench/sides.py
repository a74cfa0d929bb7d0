"""The two sides of the bench: child processes with the same arguments."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.options import to_arguments
from bench.workloads import Guarantee

SideName = Literal["millpond", "kafka_streams"]
SIDES: Final[tuple[SideName, ...]] = ("millpond", "kafka_streams")

_STOP_SECONDS: Final = 30.0
_JAVA_SOURCE: Final = Path(__file__).parent / "java" / "KafkaStreamsBench.java"


class RunFailed(Exception):
    """A side ended, hung or did not start; the message has the last lines of its output."""


@dataclass(frozen=True, slots=True)
class Job:
    """The job of one child process."""

    application: str
    """Application id and consumer group, new for every run."""
    workload: str
    guarantee: Guarantee
    commit_ms: int
    input: str
    table: str
    output: str
    bootstrap: str
    state: Path
    """The state directory, empty."""

    def arguments(self) -> list[str]:
        """Return the arguments, which both sides understand."""
        return to_arguments(
            application=self.application,
            workload=self.workload,
            guarantee=self.guarantee,
            commit_ms=self.commit_ms,
            input=self.input,
            table=self.table,
            output=self.output,
            bootstrap=self.bootstrap,
            state=self.state,
        )


class Child:
    """A running side."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Watch `process`, whose output goes to `log`."""
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Check that it runs.

        Raises:
            RunFailed: it has ended.
        """
        if (code := self._process.poll()) is not None:
            raise self.failure(f"ended with exit code {code}")

    def failure(self, what: str) -> RunFailed:
        """Return an error that has `what` happened and the last lines of the child's output."""
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        return RunFailed(f"{what}; the last lines of {self._log}:\n{tail}")

    def stop(self) -> None:
        """Stop it by SIGTERM, or by SIGKILL if that takes too long."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def compile_java(source: Path, classes: Path, java_home_bin: Path, classpath: Sequence[Path]) -> Path:
    """Compile one source file of a Java side.

    Args:
        source: the source file.
        classes: the directory for the classes.
        java_home_bin: a directory with a JDK's `java` and `javac`, version 17 or newer.
        classpath: the jars that it needs.

    Returns:
        `classes`.

    Raises:
        RunFailed: there is no `javac`, or the source does not compile.
    """
    javac = java_home_bin / "javac"
    if not javac.exists():
        message = f"{javac} does not exist, which compiles the Kafka Streams side: install openjdk-17-jdk-headless."
        raise RunFailed(message)
    classes.mkdir(parents=True, exist_ok=True)
    jars = ":".join(map(str, classpath))
    done = subprocess.run([javac, "-d", classes, "-cp", jars, source], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(f"{source.name} does not compile:\n{done.stderr}")
    return classes


class Commands:
    """The commands that start the sides."""

    def __init__(self, build: Path, java_home_bin: Path, classpath: Sequence[Path]) -> None:
        """Compile the Java side into `build`.

        Args:
            build: the directory for classes, logs and state directories.
            java_home_bin: directory with a JDK's `java` and `javac`, version 17 or newer.
            classpath: the jars of kafka-streams.

        Raises:
            RunFailed: there is no `javac`, or the source does not compile.
        """
        self.build = build
        classes = compile_java(_JAVA_SOURCE, build / "classes", java_home_bin, classpath)
        jars = ":".join(map(str, classpath))
        self._commands: dict[SideName, list[str]] = {
            "millpond": [sys.executable, "-m", "bench.worker"],
            "kafka_streams": [str(java_home_bin / "java"), "-cp", f"{classes}:{jars}", "KafkaStreamsBench"],
        }

    @contextlib.contextmanager
    def running(self, side: SideName, job: Job) -> Iterator[Child]:
        """Run a side in an empty state directory; at the end of the block stop it and delete its state."""
        log = self.build / "logs" / f"{job.application}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(job.state, ignore_errors=True)
        job.state.mkdir(parents=True)
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*self._commands[side], *job.arguments()], stdout=out, stderr=subprocess.STDOUT, env=os.environ.copy()
            )
            child = Child(process, log)
            try:
                yield child
            finally:
                child.stop()
                shutil.rmtree(job.state, ignore_errors=True)
