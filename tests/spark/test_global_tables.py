"""Global tables, on disk and in memory: a worker that ingests a snapshot has the rows of a replay, byte by byte."""

from __future__ import annotations

import contextlib
import logging
import random
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import SnapshotError
from millpond.runtime.restoring import snapshot_choice
from millpond.runtime.restoring import snapshot_restorer as bootstrap
from millpond.state import KeyValueStoreBuilder
from tests.conftest import CreateTopic
from tests.runtime.running import Running, config
from tests.spark.accounts import Account
from tests.support import kafka
from tests.support.broker import Broker

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings(
        "ignore:unclosed <socket:ResourceWarning"
    ),  # pyspark leaves them to the garbage collector
]

STORES = ("accounts", "names")
PARTITIONS = 3


class _Idle(mp.Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None: ...


def _topology(source: str, accounts: str, names: str, other: str) -> mp.Topology:
    """A global table on disk, one in memory, and a global store that a processor fills."""
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).foreach(lambda key, value: None)
    builder.global_table(accounts, key=mp.String, value=mp.Json(Account), store="accounts")
    builder.global_table(names, key=mp.Long, value=mp.String, store="names", persistent=False)
    own = KeyValueStoreBuilder(name="own", key=mp.String, value=mp.String, logging=False)
    return builder.add_global_store(own, other, _Idle, key=mp.String, value=mp.String).build()


def _accounts(rng: random.Random, count: int) -> list[Any]:
    """Return values as other producers write them: spaces, other fields in another order, null, and invalid JSON."""
    forms = [
        b'{ "balance": %d }', b'{"tags": ["a"], "balance": %d}', b'{"balance": %d, "more": 1}',
        b"null", None, b"{%d", b"",
    ]  # fmt: skip
    records = []
    for _ in range(count):
        form = rng.choice(forms)
        value = form % rng.randrange(100) if form is not None and b"%d" in form else form
        key = rng.choice([None, b"\xff", *(f"account-{each}".encode() for each in range(12))])
        # Which of two partitions is read first nobody knows: a key is always in the same one.
        records.append((key, value, 1_000 + rng.randrange(1_000), 0 if key is None else sum(key) % PARTITIONS))
    return records


def _names(rng: random.Random, count: int) -> list[Any]:
    keys = [each.to_bytes(8, "big", signed=True) for each in range(-5, 5)] + [b"short"]
    return [
        (key, rng.choice([None, b"", b"\xff", b"name"]), 1_000 + rng.randrange(1_000), sum(key) % PARTITIONS)
        for key in (rng.choice(keys) for _ in range(count))
    ]


def _state(running: Running) -> dict[str, Any]:
    """Return all committed rows of the stores, and their offsets."""
    stores = running.worker._parts.executor.stores

    def found() -> dict[str, Any]:
        return {
            name: (
                list(stores.backend(name).range(name, b"", None)),
                [stores.backend(name).offset(name, each) for each in range(PARTITIONS)],
            )
            for name in STORES
        }

    return running.worker.call(found).result(60)


@pytest.mark.long
def test_ingested_rows_are_the_replayed_ones(
    broker: Broker,
    create_topic: CreateTopic,
    app_id: str,
    spark: Any,
    rng: random.Random,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The job builds upon the previous version, and a worker adds records that the snapshot does not have."""
    from millpond_spark.job import create_snapshot

    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", -1.0)
    monkeypatch.setattr(bootstrap, "_MANIFEST_TIMEOUT_S", 600.0)
    monkeypatch.setattr(bootstrap, "_FETCH_TIMEOUT_S", 600.0)
    caplog.set_level(logging.INFO)
    servers = broker.bootstrap_servers
    topics = [create_topic(name, PARTITIONS) for name in ("in", "accounts", "names", "other")]
    _, accounts, names, _ = topics
    settings: dict[str, object] = {
        "processing.guarantee": "exactly_once",
        "deserialization.exception.handler": "continue",
        "statestore.cache.max.bytes": 0,
    }
    location = str(tmp_path / "snapshots")

    def topology() -> mp.Topology:
        return _topology(*topics)

    def feed(count: int) -> None:
        kafka.produce(servers, accounts, _accounts(rng, count))
        kafka.produce(servers, names, _names(rng, count))

    def snapshot() -> Any:
        made = create_snapshot(
            topology(),
            config(servers, app_id, tmp_path / "job", settings),
            location,
            lambda: contextlib.nullcontext(spark),
        )
        assert [each.store for each in made.manifest.stores] == sorted(STORES)
        assert made.skipped == {"own": "is a global store that a processor fills: every worker reads its topic"}
        return made

    feed(300)
    first = snapshot()
    assert first.base is None
    feed(100)
    second = snapshot()
    assert second.base == first.manifest.version
    assert second.records["accounts"] < first.records["accounts"], "only what is new is read"
    feed(40)
    found = {}
    for way, given in (("replayed", {}), ("ingested", {"bootstrap.location": location})):
        caplog.clear()
        with Running(topology(), servers, app_id, tmp_path / way, settings | given) as running:
            running.wait_running()
            found[way] = _state(running)
    assert found["ingested"] == found["replayed"]
    for name in STORES:
        assert found["replayed"][name][0], "there is something to compare"
        assert f"global store {name}: ingested" in caplog.text


def test_a_record_that_executors_cannot_decode_is_no_silent_loss(
    broker: Broker, create_topic: CreateTopic, app_id: str, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By default a worker stops at it, and so does the job. Where workers skip it, the job logs how many."""
    from millpond_spark.job import create_snapshot

    topics = [create_topic(name, PARTITIONS) for name in ("in", "accounts", "names", "other")]
    records = [(b"a", b'{"balance": 1}', 1_000, 0), (b"b", b'{"balance": "secret-word', 1_000, 0)]
    kafka.produce(broker.bootstrap_servers, topics[1], records)

    def snapshot(**settings: object) -> Any:
        return create_snapshot(
            _topology(*topics),
            config(broker.bootstrap_servers, app_id, tmp_path / "job", settings),
            str(tmp_path / "snapshots"),
            lambda: contextlib.nullcontext(spark),
        )

    with pytest.raises(
        SnapshotError, match="offset 1 in partition 0 of the topic of global table 'accounts'"
    ) as failed:
        snapshot()
    assert "secret-word" not in str(failed.value)
    assert "\n" not in str(failed.value)
    made = snapshot(**{"deserialization.exception.handler": "continue"})
    assert sum(part.rows for part in made.manifest.store("accounts").parts) == 1
    assert "global tables: 1 records are skipped" in caplog.text
