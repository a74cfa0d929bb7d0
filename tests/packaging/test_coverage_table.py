"""The table of coverage adds files up per package."""

from __future__ import annotations

from tests.packaging.coverage_table import per_package


def counted(statements: int, covered: int) -> dict[str, int]:
    return {"num_statements": statements, "covered_lines": covered, "num_branches": 4, "covered_branches": 1}


def test_files_are_added_up_per_package():
    """Rooms of the runtime and of the controllers are rows of their own."""
    rows = per_package(
        {
            "worker/millpond/state/rows.py": counted(10, 9),
            "worker/millpond/state/window.py": counted(20, 10),
            "worker/millpond/runtime/tasks/lifecycle.py": counted(30, 30),
            "operator/millpond_operator/controllers/rollout/status.py": counted(5, 0),
        }
    )
    assert list(rows) == [
        "millpond.runtime.tasks", "millpond.state", "millpond_operator.controllers.rollout", "all"
    ]  # fmt: skip
    assert (rows["millpond.state"].num_statements, rows["millpond.state"].covered_lines) == (30, 19)
    assert (rows["all"].num_statements, rows["all"].num_branches, rows["all"].covered_branches) == (65, 16, 4)
