"""A client quota of the brokers that is lower than what one transaction of the usual size holds."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.broker import jars, java
from millpond.errors import BrokerError
from tests.runtime.running import Running, failure_of
from tests.support import kafka

RECORDS = 600


def limit(servers: str, client: str, bytes_per_s: int) -> None:
    """Set the quota of a client id."""
    subprocess.run(
        [
            str(java.find_java()), "-cp", jars.classpath("kafka"), "kafka.admin.ConfigCommand",
            "--bootstrap-server", servers, "--alter", "--add-config", f"producer_byte_rate={bytes_per_s}",
            "--entity-type", "clients", "--entity-name", client,
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip


def settings(app_id: str) -> dict[str, object]:
    """Transactions of two seconds."""
    return {
        "processing.guarantee": "exactly_once",
        "producer.client.id": app_id,
        "transaction.timeout.ms": 2_000,
        "statestore.cache.max.bytes": 0,
    }


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_transactions_become_small_enough_for_a_quota(
    broker: Any, create_topic: Any, app_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All records are counted once, few transactions are lost, and the log names the quota."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    limit(servers, app_id, 5_000)
    kafka.produce(servers, source, [(f"{each % 100}-" + "x" * 100, "v") for each in range(RECORDS)])
    builder = mp.StreamsBuilder()
    counts = builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
    counts.to_stream().to(target, key=mp.String, value=mp.Long)
    with Running(builder.build(), servers, app_id, tmp_path, settings(app_id)) as running:
        running.wait(
            lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == RECORDS, "all records are committed", 120
        )
        metrics = running.worker.metrics
        assert metrics.throttling.total_s > 0
        assert metrics.recoveries <= 12
    rows = kafka.read(servers, target, settled=True)
    assert len(rows) == RECORDS
    assert set(Counter(row.key for row in rows).values()) == {RECORDS // 100}
    assert ("because of a quota ('producer_byte_rate'" in caplog.text) == bool(metrics.recoveries)
    assert "another worker" not in caplog.text


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_record_that_does_not_fit_ends_the_worker_with_the_quota(
    broker: Any, create_topic: Any, app_id: str, tmp_path: Path
) -> None:
    """One record alone takes longer than a transaction may."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    limit(servers, app_id, 1_000)
    kafka.produce(servers, source, [("k", "x" * 200_000)])
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(target)
    error = failure_of(builder.build(), servers, app_id, tmp_path, settings(app_id))
    assert isinstance(error, BrokerError)
    assert "the last one with 1 input record and 200001 bytes" in str(error)
    assert "'producer_byte_rate'" in str(error)
    assert "'transaction.timeout.ms' (2.0 s)" in str(error)
