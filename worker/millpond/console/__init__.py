"""The console: one page that shows applications, served by the operator and by `millpond dev`. It changes nothing."""

from __future__ import annotations

from .overview import Figures, WorkerFacts, figures_of, moves_of, tasks_of, topology_of, workers_of
from .server import ConsoleSource, Unavailable, add_console

__all__ = (
    "ConsoleSource",
    "Figures",
    "Unavailable",
    "WorkerFacts",
    "add_console",
    "figures_of",
    "moves_of",
    "tasks_of",
    "topology_of",
    "workers_of",
)
