"""Reports the progress and the result of a snapshot that runs in a pod to Kubernetes."""

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

from millpond.cli.termination_message import VARIABLE

if TYPE_CHECKING:
    from millpond_spark.job import Snapshot
    from millpond_spark.progress import Stage

__all__ = ("reporting", "write_result")

log: logging.Logger = logging.getLogger(__name__)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts the token of a pod's service account, and the CA certificate of its API."""

_REPORT_INTERVAL_S = 2.0
_TIMEOUT_S = 10.0
_MAX_REASON_CHARS = 200
_MAX_TABLES = 64
"""The limit of tables in the status of a StateBootstrap."""
_MAX_MESSAGE_CHARS = 4096
"""Characters that Kubernetes keeps of a termination message."""

_OnProgress = Callable[["Stage", int, int], None]


@contextlib.contextmanager
def reporting(
    url: str | None, show: _OnProgress, every_s: float = _REPORT_INTERVAL_S, account: Path = ACCOUNT
) -> Iterator[_OnProgress]:
    """Yield a function that shows progress, and reports it to the status of a StateBootstrap.

    Reports are sent from a thread of their own. A report that cannot be sent is dropped, since the next one is newer.

    Args:
        url: the status in the Kubernetes API; None to report nowhere.
        show: called with each progress.
        every_s: the pause between two reports, in seconds.
        account: a directory with `token` and `ca.crt`.
    """
    if url is None:
        yield show
        return
    reports = _Reports(url, account, every_s)

    def on_progress(stage: Stage, done: int, total: int) -> None:
        show(stage, done, total)
        reports.note(str(stage), done, total)

    with reports:
        yield on_progress


def write_result(made: Snapshot) -> None:
    """Write the result into the termination message, which Kubernetes reads when the container has ended."""
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
        for each in sorted(made.tables, key=lambda each: each.store)[:_MAX_TABLES]
    ]
    if tables:
        result |= {"tableCount": len(made.tables), "tables": tables}
    while len(text := json.dumps({"snapshot": result}) + "\n") > _MAX_MESSAGE_CHARS and tables:
        tables.pop()
    with contextlib.suppress(OSError):
        Path(path).write_text(text, encoding="utf-8")


class _Reports:
    """The sender of the latest progress, at most once per interval."""

    def __init__(self, url: str, account: Path, every_s: float) -> None:
        self._url, self._account, self._every_s = url, account, every_s
        self._newest: tuple[str, int, int] | None = None
        self._began = ("", 0.0, 0)
        """A stage, its start (monotonic seconds), and the tasks that were done at its start."""
        self._changed, self._closed = threading.Event(), threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="millpond-snapshot-reports", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._changed.set()
        self._thread.join(_TIMEOUT_S)

    def note(self, stage: str, done: int, total: int) -> None:
        """Remember the progress for the next report."""
        if (stage, done, total) != self._newest:
            if stage != self._began[0]:
                self._began = (stage, time.monotonic(), done)
            self._newest = (stage, done, total)
            self._changed.set()

    def _run(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            if self._newest is not None:
                self._send(*self._newest)
            if self._closed.is_set() and not self._changed.is_set():
                return
            self._closed.wait(self._every_s)

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
            request = urllib.request.Request(  # noqa: S310 - the operator passes the URL
                f"{self._url}?fieldManager=millpond-snapshot",
                data=json.dumps({"status": {"progress": progress}}).encode(),
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
                method="PATCH",
            )
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            with opener.open(request, timeout=_TIMEOUT_S):
                pass  # the response body is not needed
        except (OSError, HTTPException, ValueError) as error:
            if not self._failed:
                # Texts of other errors may contain the token, or a response.
                reason = str(error)[:_MAX_REASON_CHARS] if isinstance(error, OSError) else type(error).__name__
                log.warning("snapshot: cannot report progress to Kubernetes (%s); the snapshot continues", reason)
            self._failed = True
        else:
            self._failed = False
