"""Replay load traces against millpond's autoscaler, and against the usual ones: one table, and plots."""

from __future__ import annotations

from pathlib import Path

import click

from millpond_operator.autoscaling import Policy

from . import traces
from .run import SCALERS, Outcome, replay

_HEADINGS = (
    "trace",
    "autoscaler",
    "rescales",
    "in a row",
    "lag within target",
    "worker-hours / oracle",
    "most workers",
)


@click.command()
@click.option("--seed", default=1, show_default=True, help="Of the noise.")
@click.option("--trace", "names", multiple=True, type=click.Choice(traces.NAMES), help="By default all.")
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Folder for plots; by default none.")
@click.option("--reasons", is_flag=True, help="Print why millpond's autoscaler did what it did.")
def main(seed: int, names: tuple[str, ...], plots: Path | None, *, reasons: bool) -> None:
    """Replay load traces against millpond's autoscaler, and against the usual ones."""
    click.echo(f"seed {seed}")
    click.echo(f"| {' | '.join(_HEADINGS)} |")
    click.echo("|---" * len(_HEADINGS) + "|")
    for name in names or traces.NAMES:
        trace = traces.read(name)
        policy = Policy(min_replicas=1, max_replicas=trace.partitions)
        outcomes = [replay(trace, scaler, policy, seed=seed) for scaler in SCALERS]
        for each in outcomes:
            click.echo(f"| {' | '.join(_row(each))} |")
        if reasons:
            for at, reason, message in outcomes[0].reasons:
                click.echo(f"    {at:8.0f} s {reason:18} {message}")
        if plots is not None:
            from .plots import draw

            draw(outcomes, policy, plots / f"{name}.svg")


def _row(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.trace,
        outcome.scaler,
        str(len(outcome.rescales)),
        str(outcome.steps),
        f"{outcome.within:.1%}",
        f"{outcome.hours:.2f}",
        str(outcome.most),
    )


if __name__ == "__main__":
    main()
