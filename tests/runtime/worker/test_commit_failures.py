"""Failed commits in a row: the worker backs off, and ends if a retry cannot succeed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

import millpond as mp
from millpond.errors import BrokerError
from millpond.runtime.commit import pipeline as commit
from millpond.runtime.worker.commit_failures import CommitFailures
from tests.runtime.running import GUARANTEES, failure_of
from tests.support import kafka

PASSING = KafkaError(KafkaError.REQUEST_TIMED_OUT, "timed out")
PERMANENT = KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE, "the metadata is too large")


def test_first_failure_is_retried_at_once() -> None:
    """Also the first one after a successful commit."""
    failures = CommitFailures()
    assert [failures.failed(PASSING, commits) for commits in (0, 1, 2)] == [0.0] * 3


def test_failures_in_a_row_wait_longer_and_never_end_the_worker() -> None:
    """The worker waits for temporary errors to pass."""
    failures = CommitFailures()
    waits = [failures.failed(PASSING, 0) for _ in range(50)]
    assert waits[:4] == [0.0, 0.1, 0.2, 0.4]
    assert max(waits) == waits[-1] == 5.0


def test_same_permanent_error_ends_the_worker_with_its_cause() -> None:
    """After three times; another failure or a commit in between resets the count."""
    failures = CommitFailures()
    for cause, commits in [
        (PERMANENT, 0),
        (PERMANENT, 0),
        (PASSING, 0),
        (PERMANENT, 0),
        (PERMANENT, 0),
        (PERMANENT, 1),
    ]:
        failures.failed(cause, commits)
    failures.failed(PERMANENT, 1)
    with pytest.raises(BrokerError, match=r"the metadata is too large.*repartition\(\)"):
        failures.failed(PERMANENT, 1)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_worker_ends_when_brokers_refuse_the_metadata(
    guarantee: str, broker: Any, create_topic: Any, app_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has the output of at most three attempts, not of one every few milliseconds."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    encode = commit.encode_metadata

    def too_much(metadata: Any) -> str:
        return encode(metadata) + " " * (5000 if metadata.partition_time >= 0 else 0)

    monkeypatch.setattr(commit, "encode_metadata", too_much)
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(target)
    kafka.produce(servers, source, [("k", "v")])
    error = failure_of(builder.build(), servers, app_id, tmp_path / "state", {"processing.guarantee": guarantee})
    assert isinstance(error, BrokerError)
    assert "rejected 3 times" in str(error)
    assert len(kafka.read(servers, target)) == (0 if guarantee == "exactly_once" else 3)
