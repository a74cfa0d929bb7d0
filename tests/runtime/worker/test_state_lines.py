"""What the log says about the state of a worker."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import millpond as mp
from tests.runtime.running import Running


def test_a_line_says_only_what_other_threads_see_as_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who reads that a worker runs, and then asks for its state, gets that one."""
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out", key=mp.String, value=mp.String)
    running = Running(builder.build(), "127.0.0.1:1", "lines", tmp_path)
    told: list[tuple[str, str]] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            _, changed, state = record.getMessage().rpartition(" -> ")
            if changed:
                told.append((state, running.state.value))

    logger, lines = logging.getLogger("millpond.runtime.worker.parts"), Lines()
    caplog.set_level(logging.INFO, logger=logger.name)
    logger.addHandler(lines)
    try:
        with running:
            running.wait(lambda: len(told) >= 1, "a line about its state")
    finally:
        logger.removeHandler(lines)
    assert {said for said, _ in told} >= {"starting", "not_running"}
    assert [said for said, _ in told] == [seen for _, seen in told]
