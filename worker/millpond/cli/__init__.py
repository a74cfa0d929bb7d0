"""The `millpond` command: one module per sub-command, imported when it is used."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata

import click

from millpond.errors import ConfigError, MillpondError

from .session import Session
from .termination_message import last_words, unforeseen

__all__ = ("main",)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

_COMMANDS = {
    "run": "Run an application's worker until it is stopped.",
    "dev": "Run an application on a broker of its own, on this machine.",
    "query": "Ask a running application for what its stores hold.",
    "topology": "Show what an application consists of: text, Mermaid or SVG.",
    "reset": "Make an application start over: offsets, internal topics, local state.",
    "snapshot": "Make, list, verify and delete snapshots of the state.",
    "state": "Look into state: compare it with a snapshot, export it, show it.",
    "catalog": "Show what stores contained at past moments.",
    "settings": "List the settings, with their defaults.",
}

#: Commands with a folder of their own.
_PACKAGES = {"dev": "dev.command", "reset": "reset.command"}

_EPILOG = """\b
Exit status:
    0  done; for run and dev: stopped by a signal, after a last commit
    1  failed: the message says why, and what to do
    2  the command line or the configuration cannot be used
   70  an error that millpond did not foresee, with its traceback
  130  interrupted before it could end in order
"""


class _Commands(click.Group):
    """Sub-commands by name; their modules are imported when they are called, so that help is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = _PACKAGES.get(cmd_name, cmd_name)
        command: click.Command = importlib.import_module(f"millpond.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in _COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, _COMMANDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(_COMMANDS)}."
            raise click.UsageError(f"there is no command '{name}'; {hint}", ctx)
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
        arguments: the command line without the program's name; this process's own when None.
    """
    session = Session()
    try:
        cli.main(args=arguments, prog_name="millpond", obj=session, standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        sys.exit(_usage(error))
    except click.Abort:
        click.echo("millpond: interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except MillpondError as error:
        sys.exit(_failed(error, verbose=session.verbose))
    except BrokenPipeError:  # the reader of our output has gone, as in `millpond settings | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        sys.exit(_unforeseen(error))


def _usage(error: click.ClickException) -> int:
    last_words(type(error).__name__, error.format_message())
    context = getattr(error, "ctx", None)
    click.echo(f"millpond: {error.format_message()}", err=True)
    if context is not None:
        click.echo(f"Try '{context.command_path} --help'.", err=True)
    return EXIT_USAGE if isinstance(error, click.UsageError) else error.exit_code


def _failed(error: MillpondError, *, verbose: bool) -> int:
    if verbose:
        traceback.print_exception(error)
    last_words(type(error).__name__, str(error))
    click.echo(f"millpond: {error}", err=True)
    return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED


def _unforeseen(error: Exception) -> int:
    traceback.print_exc()
    last_words("Unforeseen", unforeseen(error))
    try:
        version = metadata.version("millpond")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    click.echo(
        f"millpond: an error that millpond {version} did not foresee. What was committed is safe. If the traceback "
        "above ends in your own code, mend it there; if not, please report it with the traceback.",
        err=True,
    )
    return EXIT_BUG
