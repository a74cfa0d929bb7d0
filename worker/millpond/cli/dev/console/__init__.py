"""The console of a session of `millpond dev`: the operator's page, for one application, on this machine only."""

from __future__ import annotations

from .server import SessionConsole, serving_console
from .session_overview import session_overview
from .single_worker import worker_console

__all__ = ("SessionConsole", "serving_console", "session_overview", "worker_console")
