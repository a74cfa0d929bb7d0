"""Draw the outcome of a trace as an SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from millpond_operator.autoscaling import Policy

from .run import Outcome

__all__ = ("draw",)

_COLOURS = ("#0b6e99", "#c0561b", "#7a5ba8")
_IDEAL = "#8a8a8a"
_HOUR = 3600.0
_LONGEST_LAG = 10.0
"""The lag axis ends at this multiple of the target."""


def draw(outcomes: Sequence[Outcome], policy: Policy, file: Path) -> None:
    """Draw load, workers and lag over time, of all autoscalers.

    Args:
        outcomes: of one trace, millpond's first.
        policy: has the target lag.
        file: where to write it; its folder is created.
    """
    # Text stays text, and equal runs write equal files.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "millpond", "font.size": 9, "path.simplify": True})
    figure = Figure(figsize=(8, 5.4), layout="constrained")
    load, *rest = figure.subplots(len(outcomes) + 2, 1, sharex=True, height_ratios=[1.0, *([1.2] * len(outcomes)), 1.4])
    *workers, lag = rest
    load.plot(*_xy(outcomes[0].load), color="#444444", linewidth=1)
    load.set_ylabel("records/s")
    load.set_ylim(bottom=0)
    for axes, outcome, colour in zip(workers, outcomes, _COLOURS, strict=False):
        axes.step(*_xy(outcome.ideal), where="post", color=_IDEAL, linewidth=1, linestyle=":")
        axes.step(*_xy(outcome.workers), where="post", color=colour, linewidth=1.2)
        axes.set_ylabel("workers")
        axes.set_ylim(0, 13)
        axes.set_title(f"{outcome.scaler}: {len(outcome.rescales)} rescales", fontsize=9, loc="left", pad=2)
        hours, seconds = _xy(outcome.lag)
        lag.plot(hours, seconds, color=colour, linewidth=0.9, label=outcome.scaler)
    target = policy.target_lag.total_seconds()
    lag.axhline(target, color="#444444", linewidth=0.8, linestyle="--", label="targetLag")
    lag.set_ylim(0, target * _LONGEST_LAG)
    lag.set_ylabel("lag in s")
    lag.set_xlabel("hours")
    lag.legend(fontsize=7, ncols=len(outcomes) + 1, loc="upper left", frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    # matplotlib leaves spaces at the ends of lines.
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def _xy(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [at / _HOUR for at, _ in points], [value for _, value in points]
