"""`millpond state export` and `show`: columns of a store's rows, and one sentence for bad input."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millpond import serdes
from millpond.inspection.decoding import LoggedStore, RowDecoder
from millpond.snapshots.layouts import layout_of
from millpond.snapshots.locations import open_location
from millpond.state import KeyValueStoreBuilder, StateFile, WindowStoreBuilder
from millpond.state.formats import window_key
from tests.cli.conftest import Application, Millpond
from tests.snapshots.reference import write_snapshot

VERSION = "20260101T000000Z-00000a"
HOUR_MS = 3_600_000
APP = """
    from datetime import timedelta
    import millpond as mp

    class Delay(mp.Struct):
        minutes: int
        worst: tuple[int, str] = (0, "")

    def build():
        builder = mp.StreamsBuilder()
        grouped = builder.stream("in", key=mp.String, value=mp.Json(Delay)).group_by_key()
        grouped.count(store="counts")
        (
            grouped.windowed_by(mp.TimeWindows(timedelta(hours=1)))
            .reduce(lambda one, other: other, store="delays", value=mp.Json(Delay))
        )
        return builder.build()
"""


class Delay(msgspec.Struct):
    """As in the application."""

    minutes: int
    worst: tuple[int, str] = (0, "")


COUNTS = KeyValueStoreBuilder(name="counts", key=serdes.String, value=serdes.Long, timestamped=True)
DELAYS = WindowStoreBuilder(
    name="delays", key=serdes.String, value=serdes.Json(Delay), timestamped=True, retention_ms=HOUR_MS,
    window_size_ms=HOUR_MS,
)  # fmt: skip


@pytest.fixture
def app(application: Application) -> str:
    """The application, by name."""
    return f"{application(APP)}:build"


@pytest.fixture
def options(tmp_path: Path) -> tuple[object, ...]:
    """Options for a snapshot that has a row that cannot be decoded."""
    counts = {
        number: (
            [(b"k%d" % each, serdes.Long.serialize(each), 1_000 * each, None) for each in range(number, 50, 2)],
            60,
        )
        for number in range(2)
    }
    delay = serdes.Json(Delay).serialize(Delay(7, (9, "UA")))
    delays = {
        0: ([(window_key(b"JFK", HOUR_MS), delay, 5_000, None), (window_key(b"LGA", 0), b"no JSON", 6_000, None)], 9),
        1: ([], 0),
    }
    stores: dict[str, Any] = {
        "counts": (layout_of(COUNTS), "app-counts-changelog", "id", counts),
        "delays": (layout_of(DELAYS), "app-delays-changelog", "id", delays),
    }
    write_snapshot(
        open_location(str(tmp_path / "snapshots")), "app", VERSION, stores, as_of_ms=1_767_225_600_000, rows_per_file=7
    )
    return ("--location", tmp_path / "snapshots", "--application-id", "app")


def test_a_snapshot_becomes_nested_columns(millpond: Millpond, app: str, options: tuple[object, ...]) -> None:
    """Of all partitions; values that cannot be decoded are kept as bytes and reported."""
    pq = pytest.importorskip("pyarrow.parquet")
    ended = millpond("state", "export", "delays", "--app", app, *options, "--to", "delays.parquet")
    assert ended.status == 0, ended.err
    assert "delays.parquet: 2 rows of store delays from snapshot" in ended.out
    assert "1 values could not be decoded; their bytes are in the column 'value_raw'." in ended.err
    first, second = pq.read_table("delays.parquet").to_pylist()
    assert first == {
        "key": "LGA", "window_start": datetime.fromtimestamp(0, UTC), "window_end": datetime.fromtimestamp(3_600, UTC),
        "value": None, "timestamp": datetime.fromtimestamp(6, UTC), "partition": 0, "key_raw": None,
        "value_raw": b"no JSON",
    }  # fmt: skip
    assert (second["key"], second["value"]) == ("JFK", {"minutes": 7, "worst": {"_1": 9, "_2": "UA"}})

    assert millpond("state", "export", "counts", "--app", app, *options, "--to", "counts.parquet").status == 0
    table = pq.read_table("counts.parquet")
    assert sorted((row["key"], row["value"]) for row in table.to_pylist()) == sorted(
        (f"k{each}", each) for each in range(50)
    )
    assert set(table.column("partition").to_pylist()) == {0, 1}


def test_without_the_application_there_are_bytes(millpond: Millpond, options: tuple[object, ...]) -> None:
    """Then the end of a window is unknown, too."""
    pq = pytest.importorskip("pyarrow.parquet")
    assert millpond("state", "export", "delays", *options, "--to", "delays.parquet").status == 0
    rows = pq.read_table("delays.parquet").to_pylist()
    assert [row["key"] for row in rows] == [b"LGA", b"JFK"]
    assert rows[0].keys() == {"key", "window_start", "window_end", "value", "timestamp", "partition"}
    assert rows[0]["window_end"] is None


def test_show_prints_the_same_rows(millpond: Millpond, app: str, options: tuple[object, ...], tmp_path: Path) -> None:
    """As a table and as lines of JSON; also from a stopped worker's directory."""
    ended = millpond("state", "show", "delays", "--app", app, *options)
    assert "01:00:00  1970-01-01 02:00:00" in ended.out.splitlines()[-1]
    assert '{"minutes":7,"worst":[9,"UA"]}' in ended.out.splitlines()[-1]
    ended = millpond("state", "show", "counts", "--app", app, *options, "-n", 2, "-o", "json")
    assert [msgspec.json.decode(line)["value"] for line in ended.out.splitlines()] == [0, 10]
    with StateFile(tmp_path / "state" / "app" / "w0") as file:
        store = COUNTS.build(0, file)
        rows = store.restore([(b"a", serdes.Long.serialize(3), 7_000, None)])
        file.write([("counts", 0, rows)], {("counts", 0): (1, b"")})
    ended = millpond(
        "state", "show", "counts", "--app", app, "--application-id", "app", "--state-dir", "state", "-o", "json"
    )
    assert msgspec.json.decode(ended.out) == {"key": "a", "value": 3, "timestamp": 7_000}


def test_show_says_why_rows_are_hexadecimal(millpond: Millpond, app: str, options: tuple[object, ...]) -> None:
    """It has the error of the first one."""
    ended = millpond("state", "show", "delays", "--app", app, *options)
    assert ended.err == (
        "Some keys or values are shown as hexadecimal text. The first: Json(Delay) cannot decode 7 bytes: JSON is "
        "malformed: invalid character (byte 4).\n"
    )


def test_row_of_another_type_is_shown_with_the_cure() -> None:
    """It names the field that needs a default."""
    store = KeyValueStoreBuilder(name="delays", key=serdes.String, value=serdes.Json(Delay), timestamped=False)
    decoder = RowDecoder(layout_of(store), LoggedStore(store, "changelog", layout_of(store)))
    assert decoder.row(bytes(4) + b"k", b"{}") == {"key": "k", "value": "7b7d"}
    assert decoder.undecoded == (
        "Json(Delay) cannot decode 2 bytes: Object missing required field `minutes`, because it was written as another "
        "type: give the field `minutes` a default, with which old rows are read"
    )


BAD = [
    (("show", "nope"), 1, "'20260101T000000Z-00000a' has no store 'nope'; it has 'counts', 'delays'."),
    (("export", "nope", "--to", "x.parquet"), 1, "has no store 'nope'"),
    (("show", "nope", "--app", "APP"), 1,
     "the application has no store 'nope' with a changelog; it has 'counts', 'delays'."),
    (("show", "counts", "--snapshot", "20200101T000000Z-00000a"), 1,
     "snapshot 20200101T000000Z-00000a of 'app' does not exist"),
    (("show", "counts", "--app", "nowhere:build"), 2, "module 'nowhere' does not exist"),
    (("show", "counts", "--app", "APP", "--url", "http://127.0.0.1:9"), 1, "no worker answers at 127.0.0.1:9"),
    (("show", "counts", "--url", "http://127.0.0.1:9"), 2, "need the application, which knows"),
    (("show", "counts", "--url", "http://127.0.0.1:9", "--state-dir", "x"), 2,
     "exclude each other: leave out one"),
    (("show", "counts", "--app", "APP", "--state-dir", "missing"), 1, "'missing' has no state of 'app'"),
    (("export", "counts", "--to", "missing/x.parquet"), 1,
     "cannot write 'missing/x.parquet' (No such file or directory)"),
    (("verify", "--bootstrap-servers", "127.0.0.1:9"), 2, "the workers are missing: start `millpond dev`, or give"),
    (("verify", "--bootstrap-servers", "127.0.0.1:9", "--store", "nope", "--url", "x"), 1, "has no store 'nope'"),
    (("verify", "--bootstrap-servers", "127.0.0.1:9", "--state-dir", "missing"), 1, "'missing' has no state of 'app'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "status", "said"), BAD, ids=lambda each: str(each)[:40])
def test_bad_input_is_one_sentence(
    millpond: Millpond, app: str, options: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, arguments, status, said
) -> None:
    """With cause and cure; no file remains."""
    if "export" in arguments:
        pytest.importorskip("pyarrow")
    monkeypatch.setattr("millpond.inspection.workers._TIMEOUT_S", 0.2)
    before = set(Path().iterdir())
    ended = millpond("state", *(app if each == "APP" else each for each in arguments), *options)
    assert (ended.status, ended.out) == (status, "")
    assert said in ended.err, ended.err
    assert "Traceback" not in ended.err
    assert {each for each in Path().iterdir() if each.name != "__pycache__"} - before == set()


def test_a_location_without_a_snapshot_says_so(millpond: Millpond, tmp_path: Path) -> None:
    """No file is created there."""
    ended = millpond("state", "show", "counts", "--location", tmp_path / "empty", "--application-id", "app")
    assert (ended.status, ended.out) == (1, "")
    assert "application 'app' has no snapshot" in ended.err
    assert not (tmp_path / "empty").exists()


def test_a_damaged_snapshot_leaves_no_file(millpond: Millpond, options: tuple[object, ...], tmp_path: Path) -> None:
    """Not even a partial one."""
    pytest.importorskip("pyarrow")
    damaged = max((tmp_path / "snapshots").rglob("counts/1-*.sst"))
    data = bytearray(damaged.read_bytes())
    data[20] ^= 1
    damaged.write_bytes(data)
    ended = millpond("state", "export", "counts", *options, "--to", "counts.parquet")
    assert ended.status == 1
    assert "is damaged: its SHA-256 is not that of the manifest; take a new snapshot" in ended.err
    assert list(tmp_path.glob("*counts*")) == []
    assert list(tmp_path.glob(".*partial")) == []


def test_a_directory_that_cannot_be_read_says_why(millpond: Millpond, app: str, tmp_path: Path) -> None:
    """Its worker is running, its format is another one, or its database is damaged."""
    directory = tmp_path / "state" / "app" / "w0"
    given = ("state", "show", "counts", "--app", app, "--application-id", "app", "--state-dir", directory)
    with StateFile(directory) as file:
        file.write([("counts", 0, [(b"\0\0\0\0a", b"\0" * 16)])], {("counts", 0): (1, b"")})
        assert "is running: stop it, or read from it with --url" in millpond(*given).err
    assert millpond(*given).status == 0
    (directory / "db" / "CURRENT").write_bytes(b"nonsense\n")
    assert f"cannot read the state directory '{directory}' (" in millpond(*given).err
    (directory / "format").write_text(f"millpond state {uuid.uuid4().hex}")
    assert "but this version of millpond reads 'millpond state 1'" in millpond(*given).err


def test_silent_brokers_are_reported(
    millpond: Millpond, options: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them, changes since the snapshot are unknown."""
    monkeypatch.setattr("millpond.inspection.tails._TIMEOUT_S", 0.3)
    with StateFile(tmp_path / "state" / "app" / "w0") as file:
        file.write([("counts", 0, [(b"\0\0\0\0a", b"\0" * 16)])], {("counts", 0): (1, b"")})
    ended = millpond("state", "verify", *options, "--state-dir", "state", "--bootstrap-servers", "127.0.0.1:9")
    assert (ended.status, ended.out) == (1, "")
    assert "127.0.0.1:9" in ended.err
    assert "Traceback" not in ended.err
