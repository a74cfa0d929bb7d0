"""The command `millpond query`."""

from __future__ import annotations

import json
import sys
from datetime import timedelta

import pytest

import millpond as mp
from millpond.cli import main
from millpond.errors import ConfigError
from millpond.queries import Client, QueryFailed
from tests.queries.application import Application, Point


@pytest.fixture(scope="module")
def application():
    made = Application(2, 3)
    for each in range(40):
        made.put("counts", f"k{each:02}", mp.ValueAndTimestamp(each, 1_700_000_000_000 + each))
        made.put("points", Point(each, 0), mp.ValueAndTimestamp({"count": each, "name": f"n{each}"}, 1_700_000_000_000))
        made.put("visits", "JFK", each, each * 10_000, each * 10_000 + 5_000)
        made.put("windows", "JFK", mp.ValueAndTimestamp(each / 2, 1_700_000_000_000), each * 10_000)
    yield made
    made.close()


@pytest.fixture
def query(application, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments, url=True):
        given = ["--url", application.urls()[0]] if url else []
        with pytest.raises(SystemExit) as ended:
            main(["query", *given, *map(str, arguments)])
            sys.exit(0)
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def words(text):
    return [line.split() for line in text.splitlines()]


def test_the_stores_are_listed(query):
    """Without a store, the command lists all stores with kind and serdes."""
    status, out, _ = query()
    lines = words(out)
    assert status == 0
    assert lines[0] == ["store", "kind", "keys", "values", "partitions"]
    assert ["counts", "key-value", "String", "Long", "3"] in lines
    assert ["windows", "window,", "10", "s", "String", "Double", "3"] in lines


def test_a_key_is_shown_with_its_position(query, application):
    """It shows the value, worker and position; a missing key is reported."""
    status, out, _ = query("counts", "k07")
    assert status == 0
    partition = application.catalog["counts"].partition_of(b"k07")
    assert words(out)[1] == ["k07", "7", "2023-11-14", "22:13:20.007"]
    owner = application.owners[partition].name
    position = application.committed[partition]
    assert out.splitlines()[2] == f"partition {partition} at {owner} . in-{partition} up to {position}"
    assert query("counts", "none")[:2] == (0, "'none' has no value.\n")


def test_objects_are_shown_field_by_field(query):
    """Fields of similar values become columns; a table that omits rows says so."""
    _, out, _ = query("points", "-n", 3)
    lines = words(out)
    assert lines[0] == ["key", "count", "name", "timestamp"]
    assert lines[1][:3] == ['{"y":0,"x":0}', "0", "n0"]
    assert len(lines) == 5
    assert "and more" in out


def test_ranges_prefixes_and_windows_are_shown(query):
    """Each with its options."""
    assert [line[0] for line in words(query("counts", "--low", "k10", "--high", "k12")[1])] == [
        "key", "k10", "k11", "k12",
    ]  # fmt: skip
    assert [line[0] for line in words(query("counts", "--prefix", "k3", "--reverse", "-n", 20)[1])][1:3] == [
        "k39", "k38",
    ]  # fmt: skip
    out = query("windows", "JFK", "--from", "1970-01-01T00:06:20Z")[1]
    assert words(out)[0] == ["key", "from", "to", "value", "timestamp"]
    assert [line[2] for line in words(out)[1:]] == ["00:06:20", "00:06:30"]
    assert query("windows", "LGA")[1] == "No rows.\n"


def test_sessions_are_shown(query):
    """With their starts and ends; the times choose the sessions that overlap with them."""
    out = query("visits", "JFK", "--from", "1970-01-01T00:06:12Z", "--to", "1970-01-01T00:06:21Z")[1]
    assert words(out) == [
        ["key", "from", "to", "value"],
        ["JFK", "1970-01-01", "00:06:10", "1970-01-01", "00:06:15", "37"],
        ["JFK", "1970-01-01", "00:06:20", "1970-01-01", "00:06:25", "38"],
    ]
    assert "--prefix cannot be used with a session store." in query("visits", "JFK", "--prefix", "J")[2]
    assert ["visits", "session", "String", "Long", "3"] in words(query()[1])


def test_json_is_one_object_per_line_and_has_all_rows(query):
    """For programs: no limit unless requested, and the complete answer for a key."""
    rows = [json.loads(line) for line in query("counts", "-o", "json")[1].splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [(f"k{each:02}", each) for each in range(40)]
    assert query("counts", "--json")[1] == query("counts", "-o", "json")[1]
    assert len(query("counts", "-o", "json", "-n", 5)[1].splitlines()) == 5
    answer = json.loads(query("counts", "k01", "-o", "json", "--raw")[1])
    assert (answer["found"], answer["key"], answer["value"]) == (True, "azAx", "AAAAAAAAAAE=")


def test_a_client_finds_workers_at_other_addresses_by_the_coordinator(application):
    """A worker that was started again may have another port: a client that knew only the old one goes on."""
    where = {"coordinator_url": application.coordinator.url, "application_id": "app"}
    for gone in ((), ("http://127.0.0.1:1",)):
        with Client(*gone, **where) as client:
            assert [client.store("counts").get("k07") for _ in range(2)] == [7, 7]
    with pytest.raises(ConfigError, match="both coordinator_url and application_id"):
        Client(coordinator_url=application.coordinator.url)
    nowhere = Client(coordinator_url="http://127.0.0.1:1", application_id="app", timeout=timedelta(milliseconds=100))
    with nowhere, pytest.raises(QueryFailed, match=r"the coordinator at .* does not list the workers of 'app'"):
        nowhere.stores()


def test_workers_are_found_through_the_coordinator(query, application):
    """With the URL of the coordinator and the application id instead of a worker's URL."""
    where = ["--coordinator-url", application.coordinator.url]
    status, out, _ = query(*where, "--application-id", "app", "counts", "k01", "-o", "json", url=False)
    assert (status, json.loads(out)["value"]) == (0, 1)
    status, _, err = query(*where, "counts", url=False)
    assert status == 2
    assert "--application-id" in err
    status, _, err = query("--coordinator-url", "http://127.0.0.1:1", "--application-id", "app", "counts", url=False)
    assert status == 1
    assert "does not list the workers of 'app'" in err


def test_where_command_shows_the_workers(query, application):
    """For one key, and for all partitions."""
    lines = words(query("counts", "--where")[1])
    assert lines[0] == ["partition", "task", "active", "standbys"]
    assert [line[:3] for line in lines[1:]] == [
        [str(each), f"0_{each}", application.owners[each].name] for each in range(3)
    ]
    assert len(words(query("counts", "k01", "--where")[1])) == 2


def test_failures_end_with_one_sentence_and_a_status(query):
    """The status is 1 for failed queries and 2 for wrong command lines."""
    for arguments, status, said in (
        (["count"], 1, "has no store 'count'"),
        (["counts", "k01", "--low", "k00"], 2, "--low cannot be used with a key"),
        (["counts", "--from", "1"], 2, "--from cannot be used with a key-value store"),
        (["windows", "--prefix", "J"], 2, "--prefix cannot be used with a window store"),
        (["counts", "--prefix", "k", "--high", "k"], 2, "--high cannot be used with --prefix"),
        (["counts", "--timeout", "soon"], 2, "--timeout: 'soon' is not a duration"),
        (["counts", "--max-staleness", "old"], 2, "max_staleness: 'old' is not a duration"),
        (["counts", "k01", "--partition", "9"], 1, "has no partition 9"),
    ):
        found, out, err = query(*arguments)
        assert (found, out) == (status, ""), arguments
        assert said in err
        assert "Traceback" not in err
    assert query("counts", url=False)[0] == 2


def test_versions_of_a_key_are_shown(query, application):
    """The times choose the values that were valid between them; all keys of a versioned store cannot be shown."""
    for number in range(3):
        application.put("history", "EUR", number, 10 * number)
    lines = words(query("history", "EUR", "--from", "1970-01-01T00:00:00.012Z")[1])
    assert [line[:2] for line in lines[1:]] == [["EUR", "1"], ["EUR", "2"]]
    assert "'history' is a versioned store: give a key" in query("history")[2]
