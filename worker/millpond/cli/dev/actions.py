"""The actions on a session: one table for keys in its terminal and for `millpond dev VERB` in other terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .remote import RESTART_AFTER_S, Command, CommandFailed

if TYPE_CHECKING:
    from .supervisor import Fleet

__all__ = ("ACTIONS", "KEYS", "Action", "Key", "perform")


@dataclass(frozen=True)
class Key:
    """A key that performs an action."""

    char: str
    hint: str
    """The keys to press and their effect, for the line below the table."""
    command: Callable[[Fleet, str], Command]
    """Makes the command from the session and, if it takes one, the worker."""
    takes_worker: bool = False
    """Whether a digit follows, the ordinal of a worker."""


@dataclass(frozen=True)
class Action:
    """One action on a session."""

    name: str
    """The verb on the command line, and `do` in `Command`."""
    summary: str
    """One line for lists of verbs."""
    help: str
    """The text of `millpond dev VERB --help`."""
    example: str
    """The verb's arguments in the help of `millpond dev`."""
    perform: Callable[[Fleet, Command], str]
    """Performs the action; returns its result as a part of a sentence."""
    command: Callable[..., Command]
    """Makes the command from the values of `parameters`."""
    parameters: Sequence[Callable[[Any], Any]]
    """Arguments and options of the verb."""
    keys: Sequence[Key] = ()


_worker = click.argument("worker")


def _on_worker(name: str) -> Callable[[str], Command]:
    return lambda worker: Command(name, worker)


def _kill(worker: str, *, restart_after: float, no_restart: bool) -> Command:
    return Command("kill", worker, restart_after_s=None if no_restart else restart_after)


_ALL = (
    Action(
        name="scale",
        summary="Set the number of workers.",
        help="Run WORKERS workers: start missing ones, or drain and stop the ones with the highest numbers. With 0, "
        "all stop, and the broker keeps running, as `millpond reset` needs it.",
        example="5",
        perform=lambda fleet, command: fleet.scale(command.workers),
        command=lambda workers: Command("scale", workers=workers),
        parameters=(click.argument("workers", type=click.IntRange(0)),),
        keys=(
            Key("+", "+ adds a worker", lambda fleet, _: Command("scale", workers=fleet.wanted + 1)),
            Key("-", "- removes one", lambda fleet, _: Command("scale", workers=fleet.wanted - 1)),
        ),
    ),
    Action(
        name="kill",
        summary="End a worker by SIGKILL; it is started again.",
        help="End WORKER by SIGKILL, like a crash; WORKER may also be `coordinator`.",
        example="w1",
        perform=lambda fleet, command: fleet.kill(command.worker, command.restart_after_s),
        command=_kill,
        parameters=(
            _worker,
            click.option(
                "--restart-after",
                type=click.FloatRange(0),
                default=RESTART_AFTER_S,
                show_default=True,
                metavar="SECONDS",
                help="The pause before it is started again.",
            ),
            click.option("--no-restart", is_flag=True, help="Keep it stopped until `millpond dev scale` needs it."),
        ),
        keys=(Key("k", "k1 kills w1", lambda _, worker: Command("kill", worker), takes_worker=True),),
    ),
    Action(
        name="drain",
        summary="Move a worker's tasks to others, then stop it.",
        help="Move the tasks of WORKER to other workers, then stop it; `millpond dev scale` can start it again.",
        example="w2",
        perform=lambda fleet, command: fleet.drain(command.worker),
        command=_on_worker("drain"),
        parameters=(_worker,),
        keys=(Key("d", "d2 drains w2", lambda _, worker: Command("drain", worker), takes_worker=True),),
    ),
    Action(
        name="pause",
        summary="Stop a worker by SIGSTOP: it is alive, but does not respond.",
        help="Stop WORKER by SIGSTOP, like a machine that hangs: after the session timeout it counts as dead.",
        example="w0",
        perform=lambda fleet, command: fleet.pause(command.worker),
        command=_on_worker("pause"),
        parameters=(_worker,),
    ),
    Action(
        name="resume",
        summary="Continue a paused worker by SIGCONT.",
        help="Continue WORKER after `millpond dev pause`; it finds that other workers own its tasks now.",
        example="w0",
        perform=lambda fleet, command: fleet.resume(command.worker),
        command=_on_worker("resume"),
        parameters=(_worker,),
    ),
)

ACTIONS = {action.name: action for action in _ALL}
"""All actions by name."""

KEYS = {key.char: key for action in _ALL for key in action.keys}
"""All keys by character."""


def perform(fleet: Fleet, command: Command) -> str:
    """Perform a command; return its result as a part of a sentence.

    Raises:
        CommandFailed: the action does not exist, or cannot be performed now.
    """
    action = ACTIONS.get(command.do)
    if action is None:
        raise CommandFailed(f"action '{command.do}' does not exist; the actions are {', '.join(ACTIONS)}.")
    return action.perform(fleet, command)
