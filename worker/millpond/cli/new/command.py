"""`millpond new`: write the project of a new application."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.cli.session import Session

from .project import FILES, NAME, REQUIRED, find_wheel, proposed_name, write_project

__all__ = ("command",)


@click.command("new", short_help="Write the project of a new application.")
@click.argument("name")
@click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path),
    help="The directory to make. Default: NAME.",
)
@click.option(
    "--find-links",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Copy millpond's wheel from here into the project's wheels/, where no package index has it.",
)
@click.pass_obj
def command(session: Session, name: str, directory: Path | None, find_links: Path | None) -> None:
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
    write_project(name, directory, None if find_links is None else find_wheel(find_links))
    session.out.print(f"{directory} has the application {name}, in {len(FILES)} files. Next:\n", soft_wrap=True)
    for line in (
        f"cd {directory}",
        "python -m venv .venv && source .venv/bin/activate",
        "pip install --find-links wheels -e '.[dev]'",
        "pytest",
        "millpond dev app:build",
    ):
        session.out.print(f"    {line}", soft_wrap=True, markup=False)
    if find_links is None:
        session.out.print(
            f"\nIf no package index that you use has millpond, put its wheel into {directory / 'wheels'} first.",
            soft_wrap=True, markup=False,
        )  # fmt: skip
