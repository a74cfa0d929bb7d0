"""`millpond new`: write the project of a new application."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.cli.session import Session

from .project import FILES, NAME, REQUIRED, proposed_name, write_project

__all__ = ("command",)


@click.command("new", short_help="Write the project of a new application.")
@click.argument("name")
@click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path),
    help="The directory to make. Default: NAME.",
)
@click.pass_obj
def command(session: Session, name: str, directory: Path | None) -> None:
    """Write the project of an application NAME: code, tests, settings, image, StreamApp and CI.

    The application runs and its tests pass at once: it joins a stream with a table and sums up per minute. NAME becomes
    the application id and the name of the StreamApp: at most 52 lower-case letters, digits and '-'.
    """
    if not NAME.fullmatch(name):
        near = proposed_name(name)
        hint = f", such as '{near}'" if near else ""
        raise click.UsageError(
            f"'{name}' cannot be the name of a StreamApp: choose at most 52 lower-case letters, digits and '-', "
            f"beginning with a letter and not ending with '-'{hint}."
        )
    if name in REQUIRED:
        raise click.UsageError(f"the project would depend on the package '{name}': choose another name than that.")
    directory = Path(name) if directory is None else directory
    write_project(name, directory)
    session.out.print(f"{directory} has the application {name}, in {len(FILES)} files. Next:\n", soft_wrap=True)
    for line in (
        f"cd {directory}",
        "python -m venv .venv && source .venv/bin/activate",
        "pip install -e '.[dev]'",
        "pytest",
        "millpond dev app:build",
    ):
        session.out.print(f"    {line}", soft_wrap=True, markup=False)
