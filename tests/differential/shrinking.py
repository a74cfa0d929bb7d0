"""Make a case that differs smaller, as long as it differs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Case = dict[str, Any]


def shrink(case: Case, differs: Callable[[Case], bool], attempts: int = 300) -> Case:
    """Return a smaller case that differs too.

    Args:
        case: a case that differs.
        differs: whether a case still differs, in the same way.
        attempts: how many smaller cases are tried at most.
    """
    left = attempts
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in _smaller(case):
            left -= 1
            if left <= 0:
                break
            if differs(candidate):
                case = candidate
                smaller = True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    yield from _without_input(case)
    yield from _without_steps(case)
    yield from _without_options(case)
    yield from _simpler_input(case)


def _with(case: Case, **fields: Any) -> Case:
    return {**case, **fields}


def _without_input(case: Case) -> Iterator[Case]:
    records = case["input"]
    size = len(records) // 2
    while size >= 1:
        for start in range(0, len(records), size):
            yield _with(case, input=records[:start] + records[start + size :])
        size //= 2


def _without_steps(case: Case) -> Iterator[Case]:
    steps = case["steps"]
    for at in reversed(range(len(steps))):
        gone = {steps[at]["id"]}
        kept = []
        for step in steps:
            if step["id"] in gone or gone & set(step.get("of", ())):
                gone.add(step["id"])
            else:
                kept.append(step)
        if kept:
            yield _with(case, steps=kept)
    for at, step in enumerate(steps):
        # The step is taken out, and what reads it reads what the step reads.
        for above in step.get("of", ()):
            rest = copy.deepcopy(steps[:at] + steps[at + 1 :])
            for other in rest:
                if "of" in other:
                    other["of"] = [above if each == step["id"] else each for each in other["of"]]
            yield _with(case, steps=rest)


def _without_options(case: Case) -> Iterator[Case]:
    steps = case["steps"]
    if case.get("config"):
        yield _with(case, config={})
    for setting in ("rocksdb", "pressure"):
        if setting in case:
            yield {key: value for key, value in case.items() if key != setting}
    for at, step in enumerate(steps):
        for option in ("name", "store", "keyed", "stores", "records", "bytes", "logging", "by"):
            if option in step:
                less = {key: value for key, value in step.items() if key != option}
                if option == "keyed" and step["op"].endswith("mapValues"):
                    less["mapper"] = "append:x"
                yield _with(case, steps=[*steps[:at], less, *steps[at + 1 :]])
        for option in step.get("store", ()) if isinstance(step.get("store"), dict) else ():
            less = {**step, "store": {key: value for key, value in step["store"].items() if key != option}}
            yield _with(case, steps=[*steps[:at], less, *steps[at + 1 :]])


def _simpler_input(case: Case) -> Iterator[Case]:
    records = case["input"]
    for at, record in enumerate(records):
        if isinstance(record, list) and len(record) > 4:
            yield _with(case, input=[*records[:at], record[:4], *records[at + 1 :]])
