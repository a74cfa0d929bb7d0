"""The snapshot job writes stores as tables: the snapshot's rows, decoded; all stores of one moment; atomically."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond import serdes
from millpond.catalog import indexes as catalog
from millpond.errors import SnapshotError
from millpond.serdes import Serde
from millpond.snapshots.layouts import layout_of
from millpond.snapshots.locations import Location, open_location
from millpond.snapshots.store_columns import columns_of
from millpond.state import KeyValueStoreBuilder, StoreBuilder, WindowStoreBuilder
from millpond.state.formats import window_key
from tests.conftest import CreateTopic
from tests.snapshots import s3_server
from tests.snapshots.reference import newest_rows
from tests.spark.accounts import Account, Kind, Owned, Owner
from tests.spark.changelogs import PARTITIONS, Application
from tests.support import kafka
from tests.support.broker import Broker

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

Make = Callable[..., Any]
ACCOUNTS = 8
TOTAL = 1_000 * ACCOUNTS
PAUSE_S = 0.2
_LOCK = threading.Lock()
#: Has something of its own process, as a connection.
LOCKED: Serde[Any] = Serde("Locked", serdes.Long.serialize, lambda data: (_LOCK, data)[1])


def read(location: Location, application: str, version: str, store: str) -> Any:
    """Return the table of a store, read by Iceberg's own library."""
    from millpond.catalog.tables import open_table

    return open_table(location, None, application, version, store)


def rows(location: Location, application: str, version: str, store: str) -> list[dict[str, Any]]:
    """Return the rows of a store's table."""
    return read(location, application, version, store).scan().to_arrow().to_pylist()


def ordered(found: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, found))


@pytest.mark.soak
def test_a_table_of_each_kind_of_store_has_the_rows_of_the_snapshot(
    application: Application, snapshot: Make, rng: random.Random, tmp_path: Path
) -> None:
    """They are decoded like the rows; the index has their number and the offsets."""
    application.write(rng, 3)
    uri = str(tmp_path / "tables")
    made = snapshot(application, catalog=uri)
    location = open_location(uri)
    index = catalog.read(location, application.id, made.manifest.version)
    assert index.tables == made.tables
    for builder in application.builders.values():
        expected: list[Any] = []
        for number, records in application.committed(builder.name).items():
            expected += newest_rows(layout_of(builder), number, records)[0]
        batch = columns_of(builder, None).batch(expected).columns
        assert ordered(rows(location, index.application, index.version, builder.name)) == ordered(batch.to_pylist())
        store = made.manifest.store(builder.name)
        table = index.table(builder.name)
        assert table.offsets == {part.partition: part.offset for part in store.parts}
        assert table.rows == len(expected)
        assert (table.undecoded_keys, table.undecoded_values, table.undecoded_reason) == (0, 0, None)


def accounts(broker: Broker, app_id: str, source: str, value: Any) -> Application:
    """An application whose accounts are in two stores."""
    builders: dict[str, StoreBuilder[Any, Any]] = {
        name: KeyValueStoreBuilder(name=name, key=serdes.String, value=serdes.Json(value), timestamped=True)
        for name in ("left", "right")
    }
    return Application(broker.bootstrap_servers, app_id, source, builders)


@contextlib.contextmanager
def transfers(application: Application, rng: random.Random) -> Iterator[threading.Semaphore]:
    """Move money from one store of a task to the other, each transfer in a transaction; every third one is aborted.

    Between two of them is a pause, as between the commits of an application.

    Gives what is released for each one that is committed.
    """
    producer = application.producer()
    balances = {(store, number): TOTAL // ACCOUNTS // 2 for store in ("left", "right") for number in range(ACCOUNTS)}
    stopping, done, failed = threading.Event(), threading.Semaphore(0), []

    def write(store: str, number: int, balance: int) -> None:
        value = b'{"balance":%d,"tags":["a","b"]}' % balance
        application.send(producer, store, number % (PARTITIONS - 1), (b"account-%d" % number, value, 1_000, None))

    def transfer() -> None:
        try:
            producer.begin_transaction()
            for (store, number), balance in balances.items():
                write(store, number, balance)
            producer.commit_transaction(60)
            count = 0
            while not stopping.is_set():
                stopping.wait(PAUSE_S)
                amount, losing = rng.randrange(1, 50), rng.randrange(ACCOUNTS)
                gaining = rng.choice([each for each in range(ACCOUNTS) if (each - losing) % (PARTITIONS - 1) == 0])
                producer.begin_transaction()
                less, more = balances["left", losing] - amount, balances["right", gaining] + amount
                write("left", losing, less)
                write("right", gaining, more)
                count += 1
                if count % 3 == 0:
                    producer.flush(60)
                    producer.abort_transaction(60)
                    continue
                producer.commit_transaction(60)
                balances["left", losing], balances["right", gaining] = less, more
                done.release()
        except Exception as error:
            failed.append(error)
            done.release(1_000)

    thread = threading.Thread(target=transfer, name="transfers")
    thread.start()
    try:
        yield done
    finally:
        stopping.set()
        thread.join(120)
    assert failed == []
    assert not thread.is_alive()


@pytest.mark.long
def test_what_holds_at_the_ends_of_transactions_holds_in_every_version(
    broker: Broker, app_id: str, create_topic: CreateTopic, snapshot: Make, rng: random.Random, tmp_path: Path
) -> None:
    """Transfers between two stores continue while snapshots are made: the sum over both tables is right each time.

    One changelog is compacted, so both end at a moment that was found after reading.
    """
    application = accounts(broker, app_id, create_topic("input", PARTITIONS), Account)
    kafka.alter_topic(broker.bootstrap_servers, application.changelog("left"), **{"cleanup.policy": "compact"})
    uri = str(tmp_path / "tables")
    location = open_location(uri)
    balances = []
    with transfers(application, rng) as done:
        for keep in (None, 1):
            while done.acquire(blocking=False):
                pass  # what was before the last version
            for _ in range(6):
                assert done.acquire(timeout=120), "transfers go on"
            version = snapshot(application, catalog=uri, keep=keep).manifest.version
            both = [rows(location, app_id, version, store) for store in ("left", "right")]
            balances.append([{each["key"]: each["value"]["balance"] for each in store} for store in both])
    for stores in balances:
        assert [len(store) for store in stores] == [ACCOUNTS, ACCOUNTS]
        assert sum(sum(store.values()) for store in stores) == TOTAL
    assert balances[0] != balances[1], "money has moved meanwhile"
    # Retention deletes versions that are not kept, from the tables' history too.
    assert catalog.versions(location, app_id) == [version]
    kept = read(location, app_id, version, "left")
    assert set(kept.refs()) == {"main", version}
    assert len(kept.snapshots()) == 1
    assert {path.split("/")[2] for path, _ in location.list(f"{app_id}/catalog")} == {"versions", version}


@pytest.mark.soak
def test_a_later_version_of_the_application_changes_the_columns(
    broker: Broker, app_id: str, create_topic: CreateTopic, snapshot: Make, spark: Any, tmp_path: Path
) -> None:
    """Fields are added and a type changes: the new table has both, and the old version is unchanged, by tag too."""
    source = create_topic("input", PARTITIONS)
    first = accounts(broker, app_id, source, Account)
    producer = first.producer()
    producer.begin_transaction()
    first.send(producer, "left", 0, (b"ada", b'{"balance":7,"tags":["x"]}', 1_000, None))
    first.send(producer, "left", 1, (b"\xff", b'{"balance":8}', 2_000, None))
    first.send(producer, "right", 0, (b"eve", b'{"balance":3}', 1_000, None))
    first.send(producer, "left", 2, (b"bob", b"no json", 3_000, None))
    producer.commit_transaction(60)
    uri = str(tmp_path / "tables")
    old = snapshot(first, catalog=uri).manifest.version
    location = open_location(uri)
    before = rows(location, app_id, old, "left")
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    times = [second + timedelta(seconds=number) for number in range(3)]
    plain = {"key_raw": None, "value_raw": None}
    assert sorted(before, key=lambda row: row["partition"]) == [
        {"key": "ada", "value": {"balance": 7, "tags": ["x"]}, "timestamp": times[0], "partition": 0} | plain,
        {"key": None, "value": {"balance": 8, "tags": []}, "timestamp": times[1], "partition": 1}
        | plain
        | {"key_raw": b"\xff"},
        {"key": "bob", "value": None, "timestamp": times[2], "partition": 2} | plain | {"value_raw": b"no json"},
    ]  # fmt: skip
    assert [row["value"]["balance"] for row in rows(location, app_id, old, "right")] == [3]
    table = catalog.read(location, app_id, old).table("left")
    assert (table.rows, table.undecoded_keys, table.undecoded_values) == (3, 1, 1)

    builders: dict[str, StoreBuilder[Any, Any]] = {
        "left": KeyValueStoreBuilder(name="left", key=serdes.String, value=serdes.Json(Owned), timestamped=True),
        "right": KeyValueStoreBuilder(name="right", key=serdes.String, value=LOCKED, timestamped=True),
    }
    later = first.changed(source, builders)
    producer.begin_transaction()
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    owned = Owned(9, [], Owner("Ada"), "x", [Owner("Bob", 5)], {"a": 0.5}, Kind.GOLD, moment.date(), moment, "any")
    value = serdes.Json(Owned).serialize(owned)
    later.send(producer, "left", 0, (b"ada", value, 1_000, None))
    producer.commit_transaction(60)
    new = snapshot(later, catalog=uri).manifest.version
    after = {row["key"]: row["value"] for row in rows(location, app_id, new, "left")}
    assert after["ada"] == {
        "balance": 9, "tags": [], "owner": {"name": "Ada", "age": None}, "Owner": "x",
        "others": [{"name": "Bob", "age": 5}],
        "limits": [("a", 0.5)], "kind": "gold", "opened": moment.date(), "seen": moment, "anything": '"any"',
    }  # fmt: skip
    assert after["bob"] is None
    assert ordered(rows(location, app_id, old, "left")) == ordered(before)
    (eve,) = rows(location, app_id, new, "right")
    assert (eve["key"], eve["value"]) == (b"eve", b'{"balance":3}')
    reason = catalog.read(location, app_id, new).table("right").undecoded_reason
    assert reason == "its serdes String and Locked cannot be sent to Spark's executors"

    # Other engines need nothing but the folder, and find earlier versions by their tags.
    where = catalog.table_uri(location, app_id, new, "left")
    reading = spark.newSession()
    reading.conf.set("spark.sql.caseSensitive", "true")  # for names that differ by case alone
    load = reading.read.format("iceberg")
    assert load.load(where).count() == 3
    assert load.option("versionAsOf", old).load(where).where("value.balance = 7").count() == 1
    summary = read(location, app_id, new, "left").current_snapshot().summary
    assert summary["millpond.version"] == new
    assert summary["millpond.undecoded-keys"] == "1"
    assert summary["millpond.offsets"].startswith('{"0":')


def test_tables_that_cannot_be_written_leave_nothing(
    broker: Broker, app_id: str, create_topic: CreateTopic, snapshot: Make, tmp_path: Path
) -> None:
    """The error is one sentence; neither a snapshot nor a table is published."""
    application = accounts(broker, app_id, create_topic("input", PARTITIONS), Account)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SnapshotError, match="cannot write"):
        snapshot(application, catalog=str(tmp_path / "file"))
    assert not list((tmp_path / "snapshots").rglob("*.json"))


@pytest.mark.soak
def test_tables_are_written_to_an_object_store(
    broker: Broker,
    app_id: str,
    create_topic: CreateTopic,
    snapshot: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's executors and pyiceberg access it with the credentials in the environment."""
    (tmp_path / "buckets" / "states").mkdir(parents=True)
    with s3_server.serving(tmp_path / "buckets") as endpoint:
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": s3_server.KEY,
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRET,
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        builder: StoreBuilder[Any, Any] = WindowStoreBuilder(
            name="hours", key=serdes.String, value=serdes.Long, retention_ms=10**7, window_size_ms=60_000
        )
        application = Application(broker.bootstrap_servers, app_id, create_topic("input", PARTITIONS), {"w": builder})
        producer = application.producer()
        producer.begin_transaction()
        value = serdes.Long.serialize(5)
        application.send(producer, "hours", 0, (window_key(b"a", 120_000), value, 130_000, None))
        producer.commit_transaction(60)
        uri = "s3://states/all"
        versions = [snapshot(application, catalog=uri).manifest.version for _ in range(2)]
        location = open_location(uri)
        assert catalog.versions(location, app_id) == versions[::-1]
        (row,) = rows(location, app_id, versions[1], "hours")
        start = datetime.fromtimestamp(120, UTC)
        assert (row["key"], row["window_start"], row["window_end"]) == ("a", start, start + timedelta(minutes=1))
        assert (row["value"], row["partition"]) == (5, 0)
        assert set(read(location, app_id, versions[1], "hours").refs()) == {"main", *versions}
