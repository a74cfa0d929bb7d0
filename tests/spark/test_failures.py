"""Spark's errors are pages long; users read one sentence."""

from __future__ import annotations

import pytest

from millpond.errors import SnapshotError, StateError
from millpond.runtime.missing_rights import Access
from millpond_spark.failures import cause_of, reason_of, translated_errors

EXECUTOR = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/millpond_spark/write.py", line 71, in __call__
    location.put_file(local, name)
{error}
"""
JAVA = """An error occurred while calling o91.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2844)
Caused by: {error}
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (EXECUTOR.format(error="millpond.errors.SnapshotError: cannot write 'x': disk full; make room"),
         "cannot write 'x': disk full; make room"),
        (
            EXECUTOR.format(error="ValueError: something odd"),
            "Spark could not make the snapshot (ValueError: something odd).",
        ),
        (
            EXECUTOR.format(error="ModuleNotFoundError: No module named 'millpond_spark'"),
            "install 'millpond[spark]' in their Python",
        ),
        (EXECUTOR.format(error="OSError: [Errno 28] No space left on device"), "set 'spark.local.dir'"),
        (JAVA.format(error="java.lang.OutOfMemoryError: Java heap space"), "set 'spark.driver.memory'"),
        (
            JAVA.format(error="org.apache.kafka.clients.consumer.OffsetOutOfRangeException: gone"),
            "make the snapshot again",
        ),
        (
            JAVA.format(
                error="org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_7_1 "
                "not found! Either the executor that originally checkpointed this partition is no longer alive, ..."
            ),
            "an executor of Spark ended with records that it had read",
        ),
        (
            JAVA.format(error="org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed"),
            "'ssl.ca.location'",
        ),
        (
            JAVA.format(
                error="org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: "
                "[app-a-changelog, app-b-changelog]"
            ),
            "User:alice lacks Read on topics 'app-a-changelog', 'app-b-changelog'",
        ),
        (JAVA.format(error="java.io.IOException: odd"), "Spark could not make the snapshot (IOException: odd)."),
        ("", "Spark could not make the snapshot (RuntimeError)."),
    ],
)  # fmt: skip
def test_the_cause_is_told_in_one_line(text: str, told: str) -> None:
    """With the cure, where one is known."""
    sentence = reason_of(RuntimeError(text), Access("User:alice"))
    assert told in sentence
    assert "\n" not in sentence


def test_the_innermost_cause_counts() -> None:
    """Spark wraps errors in other errors."""
    assert cause_of(RuntimeError(JAVA.format(error="java.io.IOException: odd."))) == "IOException: odd"
    text = (
        "An error occurred while calling None.x.\n"
        ": org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat y"
    )
    assert cause_of(RuntimeError(text)) == "SparkException: Could not parse Master URL: 'x'"


def test_errors_of_millpond_pass_as_they_are() -> None:
    """They are already one sentence."""
    with pytest.raises(StateError, match=r"^so it is$"), translated_errors(Access()):
        raise StateError("so it is")
    with pytest.raises(SnapshotError, match="odd"), translated_errors(Access()):
        raise ValueError("odd")
