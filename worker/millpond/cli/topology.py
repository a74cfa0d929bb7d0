"""`millpond topology`: show the sub-topologies, topics and stores of an application."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.runtime.config.parsers import as_optimization
from millpond.topology import Topology

from .application import attribute_name, load_topology
from .options import target_argument, verbose_option

__all__ = ("command",)


@click.command("topology", short_help="Show what an application consists of: text, Mermaid or SVG.")
@target_argument
@click.option(
    "-f", "--format", "kind", type=click.Choice(["text", "mermaid", "svg"]),
    help="Default: by the ending of the file's name, else text.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
@click.option(
    "--optimization", envvar="MILLPOND_TOPOLOGY_OPTIMIZATION", default="none",
    help="The setting topology.optimization: none, all, or names of rewrites.",
)  # fmt: skip
@verbose_option
def command(target: str, kind: str | None, output: Path | None, optimization: str) -> None:
    """Show the topology at MODULE:ATTRIBUTE: its sub-topologies, topics and stores.

    The text is that of Kafka Streams, so it can be compared with a Java application's, or pasted into the tools that
    draw it. Mermaid is for Markdown pages. SVG is a picture for light and dark pages; making it needs no network.
    """
    try:
        optimization = as_optimization(optimization)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="--optimization") from error
    topology = load_topology(target, optimization)
    if kind is None:
        kind = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid"}.get(output.suffix if output else "", "text")
    shown = _render(topology, kind, attribute_name(target))
    if output is None:
        click.echo(shown, nl=False)
        return
    try:
        output.write_text(shown, encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(output), error.strerror or str(error)) from error


def _render(topology: Topology, kind: str, title: str) -> str:
    if kind == "mermaid":
        return topology.mermaid()
    if kind == "svg":
        from millpond.drawing import graph_of, svg

        return svg(graph_of(topology), title)
    return str(topology.describe())
