"""The operator as a process of its own, on a real API server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from typing import Any, ClassVar

from tests.cluster.waiting import PATIENCE_S
from tests.operating.operators import ROOT, Operator
from tests.support import freezing
from tests.support.broker import free_port

__all__ = ("OperatorProcess",)

_ANSWER_S = 30.0


class OperatorProcess(Operator):
    """An operator as a process."""

    #: Not the lease: a leader that has a short one loses it when the machine is busy.
    defaults: ClassVar[dict[str, str]] = {"RESYNC_INTERVAL": "3s", "WATCH_PATIENCE": "3s", "REQUEST_TIMEOUT": "5s"}

    def __init__(self, *args: Any, **options: Any) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        super().__init__(*args, **options)

    def start(self) -> None:
        environment = {
            **os.environ,
            **self.environment(),
            "PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in ("worker", "operator")),
        }
        with self._lock, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millpond_operator"], env=environment, stdout=log, stderr=log, cwd=ROOT
            )
            self.starts += 1

    def kill(self) -> None:
        with self._lock:
            if self.process is not None:
                self.process.kill()
                self.process.wait(PATIENCE_S)
                self.process = None

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        status = self.process.wait(PATIENCE_S)
        self.process = None
        return status

    def freeze(self) -> None:
        assert self.process is not None
        freezing.freeze(self.process)

    def thaw(self) -> None:
        assert self.process is not None
        freezing.thaw(self.process)

    def ended(self, seconds: float = PATIENCE_S) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def fetch(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=_ANSWER_S) as answer:
            return str(answer.read().decode())

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _free_port(self) -> int:
        return free_port()
