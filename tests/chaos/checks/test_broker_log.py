"""Faults of the broker are found in its log."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.checks.broker_log import rewound

_LINES = """\
2026-11-22 15:29:36,673 [p-3] INFO o.a.k.CoordinatorRuntime - [GroupCoordinator id=1] Finished loading of metadata from __consumer_offsets-0 with epoch 4
2026-11-22 15:29:41,916 [p-2] INFO o.a.k.CoordinatorRuntime - [GroupCoordinator id=1] Ignored load completion from __consumer_offsets-0 because context is in ACTIVE state.
"""  # noqa: E501 - log lines as they are


def test_offsets_that_were_served_while_they_were_loaded_are_told(tmp_path: Path) -> None:
    """With their partition and the end of the load; without a log there are none."""
    log = tmp_path / "broker.log"
    assert rewound(log) == []
    log.write_bytes(b"\xff\n" + _LINES.encode())
    assert rewound(log) == ["__consumer_offsets-0 until 2026-11-22 15:29:41,916"]
