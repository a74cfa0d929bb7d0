"""What a snapshot that runs in a pod tells Kubernetes: how far it is, and what it made."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .termination_message import VARIABLE

if TYPE_CHECKING:
    from millpond_spark.job import Snapshot
    from millpond_spark.progress import Stage

__all__ = ("reporting", "write_result")

log: logging.Logger = logging.getLogger(__name__)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts the token of a pod's account, and the certificate authority of its API."""

_EVERY_S = 2.0
_TIMEOUT_S = 10.0
_LONGEST_REASON = 200
_MOST_TABLES = 64
"""As many as the status of a StateBootstrap takes."""
_LONGEST_MESSAGE = 4096
"""Characters that Kubernetes keeps of a termination message."""

_OnProgress = Callable[["Stage", int, int], None]


@contextlib.contextmanager
def reporting(
    url: str | None, tell: _OnProgress, every_s: float = _EVERY_S, account: Path = ACCOUNT
) -> Iterator[_OnProgress]:
    """Yield what tells progress to somebody, and to the status of a StateBootstrap as well.

    Reports are sent from a thread of their own. One that cannot be sent stops nothing: the next one says more.

    Args:
        url: of the status at the Kubernetes API; None for nowhere.
        tell: is told everything.
        every_s: the pause between two reports.
        account: has `token` and `ca.crt`.
    """
    if url is None:
        yield tell
        return
    reports = _Reports(url, account, every_s)

    def told(stage: Stage, done: int, total: int) -> None:
        tell(stage, done, total)
        reports.note(str(stage), done, total)

    with reports:
        yield told


def write_result(made: Snapshot) -> None:
    """Write what was made where Kubernetes reads it when the container has ended."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    files = made.manifest.files
    result: dict[str, Any] = {
        "version": made.manifest.version,
        "base": made.base or "",
        "records": sum(made.records.values()),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "seconds": round(made.seconds, 1),
    }
    tables = [
        {
            "store": each.store,
            "rows": each.rows,
            "undecodedKeys": each.undecoded_keys,
            "undecodedValues": each.undecoded_values,
        }
        for each in sorted(made.tables, key=lambda each: each.store)[:_MOST_TABLES]
    ]
    if tables:
        result |= {"tableCount": len(made.tables), "tables": tables}
    while len(text := json.dumps({"snapshot": result}) + "\n") > _LONGEST_MESSAGE and tables:
        tables.pop()
    with contextlib.suppress(OSError):
        Path(path).write_text(text, encoding="utf-8")


class _Reports:
    """Sends the newest state, a few seconds apart."""

    def __init__(self, url: str, account: Path, every_s: float) -> None:
        self._url, self._account, self._every_s = url, account, every_s
        self._newest: tuple[str, int, int] | None = None
        self._began = ("", 0.0, 0)
        """A stage, when it began, and the tasks that were done then."""
        self._news, self._over = threading.Event(), threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="millpond-snapshot-reports", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._news.set()
        self._thread.join(_TIMEOUT_S)

    def note(self, stage: str, done: int, total: int) -> None:
        """Remember how far it is."""
        if (stage, done, total) != self._newest:
            if stage != self._began[0]:
                self._began = (stage, time.monotonic(), done)
            self._newest = (stage, done, total)
            self._news.set()

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            if self._newest is not None:
                self._send(*self._newest)
            if self._over.is_set() and not self._news.is_set():
                return
            self._over.wait(self._every_s)

    def _send(self, stage: str, done: int, total: int) -> None:
        name, began, before = self._began
        seconds = time.monotonic() - began
        progress: dict[str, Any] = {
            "stage": stage,
            "done": done,
            "total": total,
            "tasksPerSecond": round((done - before) / seconds, 2) if name == stage and seconds > 0 else 0.0,
            "updatedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        try:
            token = (self._account / "token").read_text(encoding="utf-8").strip()
            context = ssl.create_default_context(cafile=self._account / "ca.crt")
            asked = urllib.request.Request(  # noqa: S310 - the operator wrote it
                f"{self._url}?fieldManager=millpond-snapshot",
                data=json.dumps({"status": {"progress": progress}}).encode(),
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
                method="PATCH",
            )
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            with opener.open(asked, timeout=_TIMEOUT_S):
                pass  # the answer says nothing that is needed
        except (OSError, HTTPException, ValueError) as error:
            if not self._failed:
                # The text of others may have the token, or what a server sent.
                reason = str(error)[:_LONGEST_REASON] if isinstance(error, OSError) else type(error).__name__
                log.warning("progress cannot be reported to Kubernetes (%s); the snapshot goes on", reason)
            self._failed = True
        else:
            self._failed = False
