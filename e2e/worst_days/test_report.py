"""The table of the worst days."""

from __future__ import annotations

from e2e.worst_days.report import Day, table


def test_each_fault_has_its_pauses_and_its_conditions() -> None:
    """One line of figures and one of conditions for each fault."""
    told = table(
        [
            Day("node killed", 40.0, 62.5, {"0_0": 0.5, "1_0": 8.25}, 0.04, {"Degraded WorkerSilent": 12.25}),
            Day("broker killed", 5.0, 5.5, {"0_0": 6.0, "1_0": 6.5}, 5.5, {}),
        ]
    ).splitlines()
    assert told[1].split() == ["lasted", "Ready", "0_0", "1_0", "p50", "max", "path"]
    assert told[2].split()[2:] == ["40.0", "62.5", "0.50", "8.25", "0.50", "8.25", "0.04"]
    assert told[-2:] == ["node killed    Degraded WorkerSilent 12", "broker killed  none"]
