"""The output of a run: progress and result."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tests.chaos.running import WRITTEN_S, Outcome, Status

__all__ = ("summary", "view")

_SHOWN = 12


def view(status: Status) -> Group:
    """Return the display of a running run."""
    head = Text.assemble(
        (f" {status.phase}", "bold"), f"   {status.elapsed:5.0f} s of about {status.total:.0f} s   ",
        (f"{status.faults} of {status.of} faults", "bold cyan"),
        f"   {status.sent:,} records sent, {status.sent - status.seen:,} in flight",
        (f"   silent for {status.idle_s:.1f} s", "yellow") if status.idle_s > 2 else "",
    )  # fmt: skip
    wrong = Text.assemble(
        " workers: ", (" ".join(status.running) or "none", "green"),
        f"   ended by themselves: {status.exits}   violations: ",
        (str(status.violations), "bold red" if status.violations else "green"),
    )  # fmt: skip
    table = Table(box=None, show_header=False, padding=(0, 2))
    for fault in status.last:
        style = "red" if any(each.number == fault.number for each in status.active) else "dim"
        table.add_row(
            f"{fault.number}", str(fault.kind), fault.target, f"{fault.duration:.1f} s", fault.detail, style=style
        )
    return Group(head, ProgressBar(total=status.of, completed=status.faults, width=80), wrong, table)


def summary(outcome: Outcome) -> Group:
    """Print the result of a run: pauses per kind of fault, and violations."""
    options = outcome.options
    table = Table(title="Seconds from a fault until every task continued", title_justify="left")
    for name in ("fault", "count", "p50", "p99", "max"):
        table.add_column(name, justify="left" if name == "fault" else "right")
    by_kind: dict[str, list[float]] = defaultdict(list)
    counts = Counter(fault.kind.value for fault in outcome.carried_out)
    for fault in outcome.carried_out:
        if fault.number in outcome.pauses:
            by_kind[fault.kind.value].append(outcome.pauses[fault.number])
    for kind, count in sorted(counts.items()):
        table.add_row(kind, str(count), *_figures(by_kind[kind]))
    everything = [pause for pauses in by_kind.values() for pause in pauses]
    table.add_row("all", str(len(outcome.carried_out)), *_figures(everything), style="bold")
    lines = [
        f"{options.application}, seed {options.seed}: {outcome.records:,} records, "
        f"{len(outcome.carried_out)} faults in {outcome.seconds:.0f} s, "
        f"{outcome.starts} starts of workers",
        f"caught up {outcome.catch_up_s:.1f} s after the last fault"
        if outcome.catch_up_s is not None
        else "never caught up",
        f"every task ran where it is assigned {outcome.settled_s - WRITTEN_S:.1f} s later"
        if outcome.settled_s is not None
        else "the tasks never settled",
        f"stores: {outcome.copies.owned} owned and complete, {outcome.copies.complete} copies complete, "
        f"{outcome.copies.behind} copies behind",
    ]
    parts: list[object] = [table, Text("\n".join(lines))]
    if outcome.exits:
        whys = Counter(f"{exit.who.rstrip('0123456789')} ({exit.code}): {exit.why}" for exit in outcome.exits)
        parts.append(
            _list(f"{len(outcome.exits)} processes ended by themselves", [f"{n} times {w}" for w, n in whys.items()])
        )
    if outcome.stuck:
        parts.append(Text(f"stuck: {outcome.stuck}", style="bold red"))
    if outcome.violations:
        parts.append(_list("seen while it ran", [f"{at:.3f} {text}" for at, text in outcome.violations]))
    if outcome.findings:
        places = Counter(finding.place for finding in outcome.findings)
        parts.append(_list("wrong at the end", [f"{place}: {count}" for place, count in places.items()]))
        firsts: dict[str, list[str]] = defaultdict(list)
        for finding in outcome.findings:
            firsts[finding.place].append(str(finding))
        parts.append(_list("such as", [text for texts in firsts.values() for text in texts[:4]], 40))
    if outcome.rewound:
        parts.append(_list("the broker served committed offsets while it loaded them", outcome.rewound))
    verdict = "Exactly once: nothing lost, nothing repeated." if outcome.exactly_once else "NOT exactly once."
    parts.append(Text(verdict, style="bold green" if outcome.exactly_once else "bold red"))
    parts.append(Text(f"plan, logs and findings: {options.directory}"))
    return Group(*parts)  # type: ignore[arg-type]


def _figures(values: Sequence[float]) -> list[str]:
    if not values:
        return ["-", "-", "-"]
    ordered = sorted(values)
    return [f"{ordered[math.ceil(len(ordered) * share) - 1]:.2f}" for share in (0.5, 0.99, 1.0)]


def _list(title: str, lines: Sequence[str], most: int = _SHOWN) -> Text:
    more = [f"  … and {len(lines) - most} more"] if len(lines) > most else []
    return Text("\n".join([f"{title}:", *(f"  {line}" for line in lines[:most]), *more]), style="red")
