"""A run of generated cases: drawing, both sides, comparing, shrinking, coverage."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.differential import stored
from tests.differential.comparing import difference
from tests.differential.drawing.coverage import options_of, pairs_of
from tests.differential.drawing.generator import Generator, possible_pairs
from tests.differential.original import Original
from tests.differential.ours.answers import answer, answer_and_reached
from tests.differential.shrinking import shrink
from tests.support import choices

BUILD = Path("build/differential")
_BATCH = 20

Case = dict[str, Any]


@dataclass
class Result:
    """What a run found."""

    seed: int
    compared: int = 0
    refused: int = 0
    """Cases that both sides refuse, or in which both fail at the same record; they are not counted as coverage."""
    counts: Counter[Any] = field(default_factory=Counter)
    """Cases in which an operator, or the second of a pair of them, got a record and was compared."""
    options: Counter[str] = field(default_factory=Counter)
    """Cases in which an option or a setting was compared."""
    differences: list[tuple[Case, str]] = field(default_factory=list)
    seconds: float = 0.0


def run(
    original: Original,
    cases: int,
    seed: int,
    *,
    seconds: float | None = None,
    most: int = 1,
    progress: Callable[[Result], bool | None] = lambda _: None,
) -> Result:
    """Compare generated cases.

    Args:
        original: the original.
        cases: how many cases.
        seed: the seed of all of them.
        seconds: after how long no new case is begun; None for no limit.
        most: after how many differences the run ends.
        progress: called after each batch; if it returns False, no new one is begun.
    """
    began = time.monotonic()
    result = Result(seed)
    generator = Generator(seed, result.counts)

    def batch(size: int) -> list[Case]:
        cases = [generator.case() for _ in range(size)]
        choices.record(f"topologies of seed {seed} after {result.compared}", cases)
        return cases

    waiting = batch(min(_BATCH, cases))
    original.send(waiting)
    left = cases - len(waiting)
    while waiting:
        answers = [answer_and_reached(case) for case in waiting]
        theirs = original.receive()
        done, waiting = waiting, []
        late = seconds is not None and time.monotonic() - began > seconds
        if left and not late and len(result.differences) < most:
            waiting = batch(min(_BATCH, left))
            left -= len(waiting)
        found = []
        for case, (mine, reached), their in zip(done, answers, theirs, strict=True):
            result.compared += 1
            what = difference(case, their, mine)
            if what is not None:
                found.append((case, what))
            elif "error" in their:
                result.refused += 1
            else:
                result.counts.update(pairs_of(case, reached))
                result.options.update(options_of(case))
        for case, what in found:
            if len(result.differences) < most:
                result.differences.append(smaller(original, case, what))
        result.seconds = time.monotonic() - began
        if progress(result) is False or len(result.differences) >= most:
            waiting = []
        if waiting:
            original.send(waiting)
    return result


def compare(original: Original, case: Case) -> str | None:
    """Return how both sides differ in a case; None if they do not."""
    return difference(case, original.answers([case])[0], answer(case))


def smaller(original: Original, case: Case, what: str) -> tuple[Case, str]:
    """Return a smaller case that differs in the same part, and how."""
    kind = _kind(what)

    def differs(candidate: Case) -> bool:
        found = compare(original, candidate)
        return found is not None and _kind(found) == kind

    least = shrink(case, differs)
    return least, compare(original, least) or what


def _kind(what: str) -> tuple[str, ...]:
    """Return what stays the same while a difference is made smaller: the part, or which side fails and how."""
    if what.startswith("failures"):
        return ("failures", *re.findall(r'null$|"text": "[\w.:]+', what, re.MULTILINE))
    return (what.split(maxsplit=1)[0],)


def save(result: Result) -> list[Path]:
    """Write the differences and the coverage of a run into `build/differential`."""
    BUILD.mkdir(parents=True, exist_ok=True)
    pairs = {pair: result.counts[pair] for pair in possible_pairs()}
    operators = {name: count for name, count in sorted(result.counts.items(), key=str) if isinstance(name, str)}
    (BUILD / "coverage.json").write_text(
        json.dumps(
            {
                "seed": result.seed,
                "cases": result.compared,
                "refused": result.refused,
                "different": len(result.differences),
                "operators": operators,
                "options": dict(sorted(result.options.items())),
                "pairs": [[*pair, count] for pair, count in sorted(pairs.items())],
            },
            indent=1,
        )
    )
    files = []
    for number, (case, what) in enumerate(result.differences):
        file = BUILD / f"difference-{result.seed}-{number}.json"
        file.write_text(stored.written(case))
        file.with_suffix(".txt").write_text(what)
        files.append(file)
    return files
