"""The client of a session: finds it by its session file, and sends it commands over HTTP.

The file is in a directory that only this user can read, and has a token that each request must carry.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import msgspec

from millpond.errors import MillpondError

from .status import SessionStatus

__all__ = (
    "RESTART_AFTER_S",
    "Command",
    "CommandFailed",
    "NoSession",
    "Remote",
    "SessionFile",
    "directory",
    "registry_of_session",
    "sessions",
)

RESTART_AFTER_S = 1.0
"""The default pause before a killed worker is started again."""

_TIMEOUT_S = 10.0
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class CommandFailed(MillpondError):
    """The session rejected a command; the message has the reason."""


class NoSession(MillpondError):
    """No session was found, or several sessions were found, or the session does not respond."""


class SessionFile(msgspec.Struct, frozen=True):
    """The session file: how this user's other programs reach a session."""

    application: str
    pid: int
    url: str
    token: str
    bootstrap_servers: str = ""
    registry: str = ""
    """The address of the schema registry that the session uses; empty without one."""


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command to a session."""

    do: str
    """The name of an action."""
    worker: str = ""
    workers: int = 0
    restart_after_s: float | None = RESTART_AFTER_S
    """Of `kill`: None to keep the worker stopped."""


def directory() -> Path:
    """Return the directory of this user's session files."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "millpond"
    return Path(tempfile.gettempdir()) / f"millpond-{os.getuid()}"


class Remote:
    """A session in another process.

    Args:
        session: its session file.
    """

    def __init__(self, session: SessionFile) -> None:
        self._session = session

    @classmethod
    def find(cls, name: str | None = None, *, application: str = "") -> Remote:
        """Return this user's running session.

        Args:
            name: the session's application id or process id, required if several sessions run.
            application: the application that a command without a name is about, if it is known: no session of another
                one is meant, even if it is the only one.

        Raises:
            NoSession: no such session runs, or several do.
        """
        running = [each for each in sessions() if name in (None, each.application, str(each.pid))]
        if name is None and application and running:
            others, running = running, [each for each in running if each.application == application]
            if not running:
                raise NoSession(
                    f"no session of '{application}' runs on this machine, only of {_named(others)}: start it with "
                    "`millpond dev`, or name one of these by --session NAME."
                )
        if not running:
            if others := sessions():  # a name was given
                raise NoSession(
                    f"no session of '{name}' runs on this machine, only of {_named(others)}: name one of these."
                )
            of = "" if name is None else f" of '{name}'"
            raise NoSession(
                f"no session of 'millpond dev'{of} runs on this machine; start one in another terminal first."
            )
        if len(running) > 1:
            raise NoSession(
                f"several sessions run: {_named(running)}; name one by its application or its process: --session NAME."
            )
        return cls(running[0])

    @property
    def application(self) -> str:
        """The session's `application.id`."""
        return self._session.application

    def status(self) -> SessionStatus:
        """Return the session's status.

        Raises:
            NoSession: the session did not answer.
        """
        return msgspec.json.decode(self._request("status"), type=SessionStatus)

    def raw_status(self) -> str:
        """Return the session's status as JSON."""
        return self._request("status").decode()

    def command(
        self, do: str, *, worker: str = "", workers: int = 0, restart_after_s: float | None = RESTART_AFTER_S
    ) -> str:
        """Send a command; see `send`."""
        return self.send(Command(do, worker, workers, restart_after_s))

    def send(self, command: Command) -> str:
        """Send a command; return its result.

        Raises:
            CommandFailed: the session rejected it.
            NoSession: the session did not answer.
        """
        return str(json.loads(self._request("command", msgspec.json.encode(command)))["said"])

    def _request(self, path: str, body: bytes | None = None) -> bytes:
        session = self._session
        # The URL is from a file that this user's own session wrote.
        request = urllib.request.Request(  # noqa: S310
            f"{session.url}/{path}", data=body, headers={"Authorization": f"Bearer {session.token}"}
        )
        try:
            with _direct.open(request, timeout=_TIMEOUT_S) as response:
                answer: bytes = response.read()
                return answer
        except urllib.error.HTTPError as error:
            with error:
                raise CommandFailed(json.loads(error.read())["error"]) from error
        except OSError as error:
            raise NoSession(
                f"the session of '{session.application}' (process {session.pid}) does not answer: {error}. Stop it, "
                "and start it again."
            ) from error


def _named(found: Iterable[SessionFile]) -> str:
    return ", ".join(f"{each.application} (process {each.pid})" for each in found)


def sessions() -> list[SessionFile]:
    """Return the session files whose session is alive; remove the others."""
    found = []
    for path in sorted(directory().glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            session = msgspec.json.decode(path.read_bytes(), type=SessionFile)
            if _alive(session.pid) and _listens(session.url):
                found.append(session)
            else:
                path.unlink(missing_ok=True)  # the session was killed before it could remove its file
    return found


def registry_of_session(application: str, servers: str) -> str:
    """Return the address of the schema registry of the session that a command is for; empty if it is not clear.

    Args:
        application: the `application.id` of the command; empty if it is not known.
        servers: the brokers of the command; empty if they are those of a session. A command for other brokers must not
            use the registry of a session, whose ids mean nothing there.
    """
    running = [each for each in sessions() if each.registry and servers in ("", each.bootstrap_servers)]
    found = {each.registry for each in running if each.application == application} or {
        each.registry for each in running
    }
    return found.pop() if len(found) == 1 else ""


def _listens(url: str) -> bool:
    """Return False if nothing listens at the address: a killed session's process id may be another process now."""
    address = urllib.parse.urlsplit(url)
    try:
        with socket.create_connection((address.hostname or "", address.port or 0), _TIMEOUT_S) as connection:
            connection.sendall(b"HEAD /status HTTP/1.0\r\n\r\n")
            while connection.recv(1024):  # up to the end, so that the server has no open connection when it ends
                pass
            return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
