"""How Kafka has ended by itself: the sentence that a session says, by exit status and log."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from millpond.broker.endings import end_of_kafka
from millpond.cli.own_broker import ended_text

FULL = [
    "2026-01-01 00:00:00,000 [data-plane] ERROR Error while appending records to words-0 in dir /d (kafka.log)",
    "java.io.IOException: No space left on device",
    "	at java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)",
    "2026-01-01 00:00:00,001 [main] ERROR Shutdown broker because all log dirs in /d have failed (kafka.log)",
]
SPACE = "no space is left on the device of /d; free some before the next start"


@pytest.mark.parametrize(
    ("status", "log", "said"),
    [
        (1, FULL, f"Kafka ended with status 1: {SPACE}"),
        (-signal.SIGBUS, [FULL[1]], f"Kafka was killed by SIGBUS: {SPACE}"),
        (-signal.SIGKILL, [FULL[3]],
         "Kafka was killed by SIGKILL; if nobody sent it, the machine or the container had no memory left"),
        (3, ["Terminating due to java.lang.OutOfMemoryError: Java heap space", "a later line"],
         "Kafka ended with status 3: java.lang.OutOfMemoryError: Java heap space"),
        (1, [FULL[3], "2026-01-01 00:00:00,002 [main] INFO ended"],
         "Kafka ended with status 1: Shutdown broker because all log dirs in /d have failed (kafka.log)"),
        (143, [FULL[3]], "Kafka ended with status 143"),
        (1, [], "Kafka ended with status 1"),
        (-50, [], "Kafka was killed by signal 50"),
    ],
)  # fmt: skip
def test_the_sentence_has_how_kafka_ended_and_why(status: int, log: list[str], said: str) -> None:
    """No line of the log is named as the reason of a signal that somebody sent."""
    assert end_of_kafka(status, log, Path("/d")) == said


def test_the_error_of_the_session_has_the_log_and_the_command_that_goes_on() -> None:
    """An argument with a space is quoted; what was deleted is not offered."""
    given = ["app:build", "--data-dir", "my data"]
    kept = ended_text("Kafka ended", Path("/d/broker.log"), given, Path("my data"))
    assert kept == (
        "Kafka ended. The log of Kafka is /d/broker.log. Topics and state are kept in my data: "
        "`millpond dev app:build --data-dir 'my data'` continues with them after the last commit."
    )
    deleted = ended_text("Kafka ended", Path("/tmp/k.log"), ["app:build"], None)
    assert deleted == (
        "Kafka ended. The log of Kafka is /tmp/k.log. Topics and state of this session are deleted: "
        "`millpond dev app:build` starts a new one, and --data-dir DIR keeps them."
    )
