"""Which output topics get rows of tables, of which a replay deletes none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.cli.reset.table_outputs import table_outputs
from tests.cli.conftest import COUNT, Application, Millpond
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

BOTH: dict[str, Any] = {"key": mp.String, "value": mp.String}


class Each(mp.Processor[str, str, str, str]):
    stores = (mp.KeyValueStoreBuilder(name="seen", key=mp.String, value=mp.String),)

    def process(self, record: mp.Record[str, str]) -> None:
        self.context.forward(record)


def _table(builder: mp.StreamsBuilder) -> mp.KTable[str, str]:
    return builder.table("rows", **BOTH, store="rows")


def _stream(builder: mp.StreamsBuilder) -> mp.KStream[str, str]:
    return builder.stream("events", **BOTH)


@pytest.mark.parametrize(
    "rows",
    [
        lambda b: b.table("rows", **BOTH).to_stream(),
        lambda b: _table(b).map_values(str.upper).to_stream().peek(print),
        lambda b: _table(b).to_stream().map(lambda key, value: (value, key), **BOTH).repartition(name="by-value"),
        lambda b: _stream(b).group_by_key().reduce(lambda _, value: value, store="last").to_stream(),
        lambda b: _table(b).join(b.table("others", **BOTH, store="others"), lambda one, _: one).to_stream(),
        lambda b: _stream(b).merge(_table(b).to_stream()),
    ],
)
def test_the_topic_of_a_table_is_named(rows: Any) -> None:
    """Below steps without stores and a repartition topic, too."""
    builder = mp.StreamsBuilder()
    rows(builder).to("out", **BOTH)
    assert table_outputs(builder.build()) == ["out"]


@pytest.mark.parametrize(
    "events",
    [
        lambda b: _stream(b).filter(lambda _, value: bool(value)),
        lambda b: _stream(b).join(_table(b), lambda one, _: one),
        lambda b: _table(b).to_stream().process(Each),
        lambda b: _stream(b).join(
            _table(b).to_stream(),
            lambda one, _: one,
            mp.JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=1)),
        ),
    ],
)
def test_topics_of_events_are_not(events: Any) -> None:
    """A join of a stream with a table, and a processor with a store, send no rows of the table."""
    builder = mp.StreamsBuilder()
    events(builder).to("out", **BOTH)
    builder.table("more", **BOTH).to_stream().to(lambda key, _value, _context: key, **BOTH)
    assert table_outputs(builder.build()) == []


def test_a_dry_run_names_them(
    millpond: Millpond,
    broker: Broker,
    application: Application,
    create_topic: CreateTopic,
    app_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what to do, before anything is changed."""
    words, counts = create_topic("words"), create_topic("counts")
    kafka.produce(broker.bootstrap_servers, words, [(None, "a", 1_700_000_000_000, 0)])
    monkeypatch.setenv("WORDS", words)
    monkeypatch.setenv("COUNTS", counts)
    said = millpond(
        "reset", f"{application(COUNT)}:count", "--application-id", app_id, "--bootstrap-servers",
        broker.bootstrap_servers, "--to-latest", "--dry-run",
    )  # fmt: skip
    assert f"output topics of tables keep rows that the replay no longer yields: {counts}. If there may be" in said.out
