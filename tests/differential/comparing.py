"""Compare the answers of both sides to a case."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.differential.rules import RULES, is_meant

Answer = dict[str, Any]


def difference(case: dict[str, Any], original: Answer, ours: Answer) -> str | None:
    """Return the first difference of two answers as a text; None if they are equal."""
    if original == ours:
        return None
    failures = original.get("error"), ours.get("error")
    if failures != (None, None):
        places = [None if each is None else each["at"] for each in failures]
        if places[0] == places[1] or is_meant(original.get("error", {}).get("text", "")):
            return None
        return f"failures differ\n  original: {_shown(failures[0])}\n  ours:     {_shown(failures[1])}"
    if ours.get("unmerged"):
        return None  # see rules.UNMERGED
    original, ours = copy.deepcopy(original), copy.deepcopy(ours)
    parts = ["describe", "internal", "outputs", "effects", "stores", "dropped"]
    if "meant_from" in ours:  # see rules.OUTDATED_ANSWERS and rules.CLOSED_SESSIONS
        parts = parts[:3]
        for each in (original, ours):
            del each["outputs"][ours["meant_from"] :]
    for rule in RULES:
        rule.apply(case, original)
        rule.apply(case, ours)
    for part in parts:
        if original.get(part) != ours.get(part):
            return f"{part} differ\n{_where(original.get(part), ours.get(part))}"
    return None


def _where(original: Any, ours: Any, path: str = "") -> str:
    if isinstance(original, dict) and isinstance(ours, dict):
        for key in sorted({*original, *ours}):
            if original.get(key) != ours.get(key):
                return _where(original.get(key), ours.get(key), f"{path}/{key}")
    if isinstance(original, list) and isinstance(ours, list) and len(original) == len(ours):
        for at, (left, right) in enumerate(zip(original, ours, strict=True)):
            if left != right and isinstance(left, dict | list):
                return _where(left, right, f"{path}/{at}")
    return f"  at {path or '/'}\n  original: {_shown(original)}\n  ours:     {_shown(ours)}"


def _shown(it: Any) -> str:
    if isinstance(it, str) and "\n" in it:
        return "\n" + it
    return json.dumps(it)[:3000]
