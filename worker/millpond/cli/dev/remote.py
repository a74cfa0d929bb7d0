"""A session as other programs of this user see it: found by its file, spoken to over HTTP on this machine.

The file lies in a directory that only this user can read, and holds a token that each request must carry.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import msgspec

from millpond.errors import MillpondError

from .status import SessionStatus

__all__ = ("RESTART_AFTER_S", "Command", "CommandFailed", "NoSession", "Remote", "SessionFile", "directory")

RESTART_AFTER_S = 1.0
"""The pause before a killed worker is started again, unless the command says otherwise."""

_TIMEOUT_S = 10.0
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class CommandFailed(MillpondError):
    """A command that cannot be carried out; the message says why."""


class NoSession(MillpondError):
    """There is no session to talk to, or there are several."""


class SessionFile(msgspec.Struct, frozen=True):
    """What a session says of itself to this user's other programs."""

    application: str
    pid: int
    url: str
    token: str


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is asked of a session; `do` is the name of a method of `Fleet`."""

    do: str
    worker: str = ""
    workers: int = 0
    restart_after_s: float | None = RESTART_AFTER_S


def directory() -> Path:
    """Where this user's sessions are listed."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "millpond"
    return Path(tempfile.gettempdir()) / f"millpond-{os.getuid()}"


class Remote:
    """A session in another process.

    Args:
        session: where it is.
    """

    def __init__(self, session: SessionFile) -> None:
        self._session = session

    @classmethod
    def find(cls, name: str | None = None) -> Remote:
        """The session of this user that runs.

        Args:
            name: its application id or process id, needed where there are several.

        Raises:
            NoSession: there is none, or there are several.
        """
        running = [each for each in _sessions() if name in (None, each.application, str(each.pid))]
        if not running:
            of = "" if name is None else f" of '{name}'"
            raise NoSession(
                f"no 'millpond dev … --workers N'{of} runs on this machine; start one in another terminal first."
            )
        if len(running) > 1:
            told = ", ".join(f"{each.application} (process {each.pid})" for each in running)
            raise NoSession(f"several sessions run: {told}; name one with --app NAME or --app PROCESS.")
        return cls(running[0])

    def status(self) -> SessionStatus:
        """What there is to see.

        Raises:
            NoSession: it does not answer any more.
        """
        return msgspec.json.decode(self._ask("status"), type=SessionStatus)

    def raw_status(self) -> str:
        """The same as JSON."""
        return self._ask("status").decode()

    def command(
        self, do: str, *, worker: str = "", workers: int = 0, restart_after_s: float | None = RESTART_AFTER_S
    ) -> str:
        """Have something done; returns what the session says to it.

        Raises:
            Refused: it says no.
            NoSession: it does not answer any more.
        """
        command = Command(do, worker, workers, restart_after_s)
        return str(json.loads(self._ask("command", msgspec.json.encode(command)))["said"])

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        session = self._session
        # The address is what this user's own session wrote.
        request = urllib.request.Request(  # noqa: S310
            f"{session.url}/{path}", data=body, headers={"Authorization": f"Bearer {session.token}"}
        )
        try:
            with _direct.open(request, timeout=_TIMEOUT_S) as answer:
                read: bytes = answer.read()
                return read
        except urllib.error.HTTPError as error:
            with error:
                raise CommandFailed(json.loads(error.read())["error"]) from error
        except OSError as error:
            raise NoSession(
                f"the session of '{session.application}' (process {session.pid}) does not answer: {error}."
            ) from error


def _sessions() -> list[SessionFile]:
    """Those whose process is still there."""
    found = []
    for path in sorted(directory().glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            session = msgspec.json.decode(path.read_bytes(), type=SessionFile)
            if _alive(session.pid):
                found.append(session)
            else:
                path.unlink(missing_ok=True)  # it had no chance to do so
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
