"""How often the differential tests compare an operator, an option or a setting with the original."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.differential import stored
from tests.differential.drawing.coverage import options_of, pairs_of
from tests.parity.inventory import Member

FILE = Path(__file__).with_name("last_run.json")
"""The counts of a run of generated cases: `python -m tests.parity --run FILE` keeps those of a longer one."""

_KEPT = ("seed", "cases", "refused", "different", "operators", "options")


def operator_of(owner: str, member: Member) -> str:
    """Return a method as the differential cases name it: with the kind of the other side where a join has several."""
    name, parameters = f"{owner}.{member.name}", member.parameters or ()
    if name in ("KStream.join", "KStream.leftJoin"):
        return name + {"KTable": "Table", "GlobalKTable": "Global"}.get(parameters[0], "")
    if name in ("KTable.join", "KTable.leftJoin"):
        return name + ("Foreign" if parameters[1] in ("Function", "BiFunction") else "")
    return name


@functools.cache
def of_stored_cases() -> Counter[str]:
    """Return in how many stored cases each operator and each option is."""
    found: Counter[str] = Counter()
    for file in stored.files():
        case = stored.read(file)
        found.update(name for name in pairs_of(case) if isinstance(name, str))
        found.update(options_of(case))
    return found


@functools.cache
def last_run() -> dict[str, Any]:
    """Return the counts of the run that was kept last."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def of_generated_cases() -> Counter[str]:
    """Return in how many cases of that run each operator and each option was compared."""
    return Counter(last_run()["operators"]) + Counter(last_run()["options"])


def keep(file: Path) -> None:
    """Keep the counts of a run: those of `build/differential/coverage.json`, without the pairs."""
    content = json.loads(file.read_text(encoding="utf-8"))
    FILE.write_text(json.dumps({key: content[key] for key in _KEPT}, indent=1) + "\n", encoding="utf-8")
