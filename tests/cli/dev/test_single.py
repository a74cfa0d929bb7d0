"""A session with one worker in its process: commands stop and start the worker, a signal ends the session."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from millpond.cli.dev.remote import Command, CommandFailed
from millpond.cli.dev.single import WorkerSwitch, run_switched


class _Session:
    """A session whose worker runs until it is stopped; `then` has what happens in its runs and pauses, in order."""

    def __init__(self, *then: str) -> None:
        self.switch = WorkerSwitch()
        self.seen: list[str] = []
        self._then = list(then)

    def run(self) -> bool:
        """Run the worker; return whether a signal stopped it."""
        self.seen.append("runs")
        return self._next() == "signal"

    def parked(self) -> None:
        self.seen.append("parked")
        self._next()

    def _next(self) -> str:
        command = self._then.pop(0)
        if command == "kill":
            os.kill(os.getpid(), signal.SIGTERM)
        elif command.startswith("scale"):
            for count in command.split()[1:]:
                self.switch.perform(Command("scale", workers=int(count)))
        return command


@pytest.mark.parametrize(
    ("then", "seen"),
    [
        (["signal"], ["runs"]),
        (["scale 0", "kill"], ["runs", "parked"]),
        (["scale 0", "scale 1", "signal"], ["runs", "parked", "runs"]),
        (["scale 0 1", "signal"], ["runs", "runs"]),
        (["scale 0", "scale 1", "scale 0", "scale 1", "signal"], ["runs", "parked", "runs", "parked", "runs"]),
        (["an end of its own"], ["runs"]),
    ],
)
def test_a_worker_follows_the_commands(then: list[str], seen: list[str]) -> None:
    """Also if the second one comes before the worker has stopped. The worker is started for no other reason."""
    before = signal.getsignal(signal.SIGTERM)
    session = _Session(*then)
    run_switched(session.run, session.switch, session.parked)
    assert session.seen == seen
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_commands_say() -> None:
    """A command that changes nothing says so; what needs processes of their own is refused."""
    switch = WorkerSwitch()
    stopped = threading.Event()
    switch.stop = stopped.set
    for count, said in (
        (1, "1 worker runs already"),
        (0, "stopping the worker; the broker keeps running"),
        (0, "no worker runs"),
        (1, "starting the worker, with the application as its files are now"),
    ):
        assert switch.perform(Command("scale", workers=count)) == said
    assert stopped.is_set()
    for command, what in ((Command("scale", workers=2), "scale 2"), (Command("kill", worker="w0"), "kill")):
        with pytest.raises(CommandFailed, match=f"'{what}' needs a session with workers of their own"):
            switch.perform(command)
