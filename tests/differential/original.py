"""Kafka Streams in a Java process that serves many cases: java/Original.java."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millpond.broker import jars, java

HERE = Path(__file__).parent
_CLASSES = Path("build/differential")
_MEMORY = Path("/dev/shm")


def _compiled(home: Path, classpath: str) -> Path:
    """Return the directory of the compiled classes; they are compiled once for each version of the sources."""
    sources = sorted((HERE / "java").glob("*.java"))
    state = hashlib.sha256(b"".join(source.read_bytes() for source in sources) + classpath.encode()).hexdigest()[:16]
    directory = _CLASSES.resolve() / f"classes-{state}"
    if not directory.exists():
        _CLASSES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CLASSES) as scratch:
            made = Path(scratch) / "classes"
            subprocess.run(
                [home / "bin" / "javac", "-nowarn", "-d", made, "-cp", classpath, *sources],
                check=True,
                capture_output=True,
            )
            try:
                made.rename(directory)
            except OSError:
                if not directory.exists():  # else another process compiled them at the same time
                    raise
    return directory


class Original:
    """A JVM with Kafka Streams. It is a context manager.

    Args:
        lasting: whether it runs for minutes, in which the JVM's second compiler pays.
    """

    def __init__(self, *, lasting: bool = False) -> None:
        home = java.find_jdk()
        classpath = jars.classpath("kafka-streams")
        classes = _compiled(home, classpath)
        # RocksDB's files live for milliseconds: in memory they cost less.
        self._state = tempfile.TemporaryDirectory(
            prefix="millpond-differential-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None
        )
        self._process = subprocess.Popen(
            [
                home / "bin" / "java",
                "-XX:+UseSerialGC",
                "-Xmx768m",
                # An exception that is thrown often would lose its text, by which `rules.FAILURES` knows it.
                "-XX:-OmitStackTraceInFastThrow",
                *([] if lasting else ["-XX:TieredStopAtLevel=1"]),
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                f"-Dstate.dir={self._state.name}",
                "-cp",
                f"{classes}{os.pathsep}{classpath}",
                "Original",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def send(self, cases: Sequence[Any]) -> None:
        """Begin a batch; `receive` returns its answers. At most one batch may wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(cases) + "\n")
        self._process.stdin.flush()

    def receive(self) -> list[Any]:
        """Return the answers of the batch that was sent."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Java process ended with status {self._process.wait()}")
        return json.loads(line)

    def answers(self, cases: Sequence[Any]) -> list[Any]:
        """Return the original's answers to cases."""
        self.send(cases)
        return self.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._state.cleanup()
