"""`millpond topology`: show the sub-topologies, topics and stores of an application."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.topology import Topology
from millpond.topology.settings.checking import check_configured

from .application import attribute_name, load_topology
from .options import load_config, settings_options, target_argument, verbose_option

__all__ = ("command",)


@click.command("topology", short_help="Show what an application consists of: text, Mermaid or SVG.")
@target_argument
@click.option(
    "-f", "--format", "kind", type=click.Choice(["text", "mermaid", "svg"]),
    help="Default: by the ending of the file's name, else text.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
@click.option(
    "--optimization", help="The setting topology.optimization: none, all, or names of rewrites.",
)  # fmt: skip
@settings_options
@verbose_option
def command(  # noqa: PLR0913 - one parameter per option
    target: str,
    kind: str | None,
    output: Path | None,
    optimization: str | None,
    file: Path | None,
    flags: dict[str, object],
) -> None:
    """Show the topology at MODULE:ATTRIBUTE: its sub-topologies, topics and stores.

    The text is that of Kafka Streams, so it can be compared with a Java application's, or pasted into the tools that
    draw it. Mermaid is for Markdown pages. SVG is a picture for light and dark pages; making it needs no network.

    The settings are those of `millpond run`, from the same sources. If a worker with these settings would not start
    with the topology, such as for a step without a serde, the command shows the topology, says why, and fails.
    """
    if optimization is not None:
        flags["topology.optimization"] = optimization
    early = load_config(file, flags, required=(), beside_session=True, imports=False)
    topology = load_topology(target, early.topology_optimization)
    _show(topology, kind, output, attribute_name(target))
    check_configured(topology, load_config(file, flags, required=(), beside_session=True))


def _show(topology: Topology, kind: str | None, output: Path | None, title: str) -> None:
    if kind is None:
        kind = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid"}.get(output.suffix if output else "", "text")
    shown = _render(topology, kind, title)
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
