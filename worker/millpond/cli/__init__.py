"""The `millpond` command: one module or folder for each sub-command, imported at its first use."""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import click

from millpond.errors import ConfigError, MillpondError, ProcessingFailed
from millpond.json_logs import logs_json
from millpond.user_code import own_traceback, place_of

from .cluster.printable import printable
from .session import Session
from .termination_message import unexpected_error, write_termination_message

__all__ = ("main",)

log: logging.Logger = logging.getLogger("millpond.cli")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

_COMMANDS = {
    "new": "Write the project of a new application: code, tests, settings, image, StreamApp, CI.",
    "run": "Run a worker of an application until it is stopped.",
    "dev": "Run an application on this machine, with a Kafka broker of its own.",
    "status": "Show running applications: workers, tasks, moves, conditions, events.",
    "tasks": "Show the tasks of a running application, and what they wait for.",
    "drain": "Move the tasks of a worker to other workers.",
    "logs": "Show the logs of workers.",
    "query": "Query the stores of a running application.",
    "topics": "Show topics, or the partitions of one.",
    "produce": "Write JSON lines to a topic, as records.",
    "consume": "Show the records of a topic as JSON lines.",
    "check": "Check an application, its settings and its manifests, without a cluster.",
    "topology": "Show the topology of an application as text, Mermaid or SVG.",
    "acls": "Print the rights that an application needs in Kafka.",
    "reset": "Make an application start over: offsets, internal topics, local state.",
    "snapshot": "Make, list, verify and delete snapshots of the state.",
    "state": "Inspect state: compare it with a snapshot, export it, show it.",
    "catalog": "Show what stores contained at past moments.",
    "settings": "List the settings, with their defaults.",
}

_FOLDERS = frozenset({"acls", "check", "run", "dev", "logs", "new", "query", "reset", "snapshot", "state", "status"})
"""Commands with a folder of their own."""

_IN_FOLDERS = {
    "tasks": "status.tasks",
    "drain": "status.drain",
    **{each: f"records.{each}" for each in ("topics", "produce", "consume")},
}
"""Commands in the folder of another one."""

_EPILOG = """\b
Exit status:
    0  success; for run and dev: stopped by a signal, after a last commit
    1  failure: the message says why, and what to do
    2  the command line or the configuration is not valid
   70  an unexpected error, with its traceback
  130  interrupted before a clean end
"""


class _Commands(click.Group):
    """The sub-commands by name. Their modules are imported when they are called, so that help is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = _IN_FOLDERS.get(cmd_name) or (f"{cmd_name}.command" if cmd_name in _FOLDERS else cmd_name)
        command: click.Command = importlib.import_module(f"millpond.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in _COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, _COMMANDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"the commands are {', '.join(_COMMANDS)}."
            raise click.UsageError(f"command '{name}' does not exist; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(None, "--version", package_name="millpond", message="millpond %(version)s")
def cli() -> None:
    """Stream applications in Python with the semantics of Kafka Streams, exactly once."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit status.

    Args:
        arguments: the command line without the program's name; None for the command line of this process.
    """
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names and messages may have any character
    session = Session()
    try:
        cli.main(args=arguments, prog_name="millpond", obj=session, standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        sys.exit(_report_usage_error(error))
    except click.Abort:
        _say("interrupted.")
        sys.exit(EXIT_INTERRUPTED)
    except MillpondError as error:
        sys.exit(_report_failure(error, verbose=session.verbose))
    except BrokenPipeError:  # the reader closed the pipe, as in `millpond settings | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - the last line of defence: anything else is a bug
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            sys.exit(_report_full_disk(error))
        sys.exit(_report_unexpected(error))


def _open_missing_streams() -> None:
    """Replace standard streams that were closed, as by `>&-`, with the null device. Python has None for them."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - until the end of the process
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - as above


def _report_full_disk(error: OSError) -> int:
    of = "a device that millpond writes to, such as that of standard output"
    if error.filename is not None:
        of = f"the device of {error.filename}"
    text = f"no space is left on {of} ({error.strerror}): free some, and try again."
    write_termination_message(type(error).__name__, text)
    _say(text)
    with contextlib.suppress(OSError):
        sys.stdout.close()  # it may have text that cannot be written, which Python would try at the end
    return EXIT_FAILED


def _report_usage_error(error: click.ClickException) -> int:
    write_termination_message(type(error).__name__, error.format_message())
    context = getattr(error, "ctx", None)
    _say(error.format_message())
    if context is not None and not logs_json():
        click.echo(f"Try '{context.command_path} --help'.", err=True)
    return EXIT_USAGE if isinstance(error, click.UsageError) else error.exit_code


def _report_failure(error: MillpondError, *, verbose: bool) -> int:
    if logs_json():
        log.critical("%s", error, exc_info=error.__cause__ or (error if verbose else None))
        write_termination_message(type(error).__name__, str(error))
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    if verbose:
        traceback.print_exception(error)
    elif isinstance(error, ProcessingFailed) and error.__cause__ is not None:
        click.echo(printable(own_traceback(error.__cause__)), err=True, nl=False)
    write_termination_message(type(error).__name__, str(error))
    click.echo(f"millpond: {printable(str(error))}", err=True)
    return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED


def _report_unexpected(error: Exception) -> int:
    if logs_json():
        log.critical("unexpected error: %s", error, exc_info=error)
    else:
        traceback.print_exc()
    write_termination_message("Unforeseen", unexpected_error(error))
    try:
        version = metadata.version("millpond")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    _say(
        f"unexpected error in millpond {version}: {_in_one_line(error)}. Committed results are safe. If the traceback "
        "above ends in your own code, fix it there; if not, please report it with the traceback."
    )
    return EXIT_BUG


def _in_one_line(error: Exception) -> str:
    """Return the class, the text and the place of an exception, for those who see the last line of a log alone."""
    text = str(error).strip().partition("\n")[0].removesuffix(".")
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    innermost = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    place = place_of(error) or innermost
    return f"{named} ({place})" if place else named


def _say(text: str) -> None:
    """Write a message to standard error, in the format of the logs."""
    if logs_json():
        log.error("%s", text)
    else:
        click.echo(f"millpond: {printable(text)}", err=True)
