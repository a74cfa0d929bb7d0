"""LRU stores answer queries, which are no use of an entry; a store that cannot answer says why."""

from __future__ import annotations

import http.client
from datetime import timedelta

import pytest

import millpond as mp
from millpond.queries import FailureReason, QueryFailed
from millpond.runtime.http.query_catalog import store_catalog
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.runtime.topics.plan import make_plan
from tests.queries import application
from tests.queries.application import Application

SECOND = timedelta(seconds=1)


class Words(mp.StateStore):
    """Words, as a set."""

    def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None: ...

    def clear(self) -> None: ...


RECENT = mp.KeyValueStoreBuilder(name="recent", key=mp.String, value=mp.Long, max_entries=2)
WORDS = mp.StateStoreBuilder(name="words", supplier=Words)


def test_queries_of_an_lru_store_are_no_use_of_its_entries(monkeypatch):
    """Committed and uncommitted entries are found, evicted ones are not, whoever asks for them."""
    monkeypatch.setattr(application, "STORES", (RECENT,))
    made = Application(1, 1, alone=True)
    try:
        client = made.client()
        store = client.store("recent")
        made.put("recent", "a", 1)
        made.put("recent", "b", 2)
        assert [(row.key, row.value) for row in store.all()] == [("a", 1), ("b", 2)]
        for isolation in ("read_committed", "read_uncommitted"):
            assert store.get("a", isolation=isolation) == 1
        made.put("recent", "c", 3, commit=False)
        assert (store.get("a"), store.get("a", isolation="read_uncommitted")) == (1, None)
        made.owners[0].do(lambda: made.owners[0].commit(0))
        assert [row.key for row in store.all()] == ["b", "c"]

        made.catalog.others = {"words": "is of a class of the application"}
        connection = http.client.HTTPConnection("127.0.0.1", made.workers[0].http.port, timeout=60)
        connection.request("GET", "/v1/stores/words/keys/a")
        answer = connection.getresponse()
        assert answer.status == 400
        assert b"store 'words' is of a class of the application." in answer.read()
        connection.close()
    finally:
        made.close()


def test_stores_that_do_not_answer_say_why():
    """One sentence each, with what to do instead."""
    builder = mp.StreamsBuilder()
    left = builder.stream("left", key=mp.String, value=mp.String)
    right = builder.stream("right", key=mp.String, value=mp.String)
    windows = mp.JoinWindows.of_time_difference_and_grace(SECOND, SECOND)
    left.left_join(right, lambda one, other: f"{one}{other}", windows, store="pairs", name="pair").to("out")
    table = builder.table("table", key=mp.String, value=mp.String, store="rows")
    table.suppress(mp.until_time_limit(SECOND), name="held").to_stream().to("rows-out")
    builder.add_state_store(WORDS)

    class Idle(mp.Processor[str, str, None, None]):
        def process(self, record: mp.Record[str, str]) -> None: ...

    left.process(Idle, stores=["words"])
    topology = builder.build()
    plan = make_plan(topology, {"left": 1, "right": 1, "table": 1, "out": 1, "rows-out": 1}, "app")
    catalog = store_catalog(topology, plan, Environment("app", Handlers()))
    assert list(catalog) == ["rows"]
    expected = {
        "words": "only its processors read: let one put",
        "pairs-this-join-store": "a join of streams waits with",
        "pairs-left-shared-join-store": "a join of streams waits with",
        "held-store": r"the buffer of a suppress\(\)",
    }
    for name, why in expected.items():
        with pytest.raises(QueryFailed, match=f"store '{name}' .*{why}") as failed:
            catalog[name]
        assert failed.value.reason is FailureReason.UNKNOWN_QUERY_TYPE
    with pytest.raises(QueryFailed, match="has no store 'nope' to query; it has 'rows'"):
        catalog["nope"]
