"""Missing names say so, names of Kafka Streams lead to those here, and the pages have all names."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import millpond as mp
from millpond.names import NOT_YET, PAGE
from tests.parity import inventory, places

ROOT = Path(__file__).parents[2]

NAME = re.compile(r"`(?:\w+[.])?(\w+)")
OF_OPERATORS = {"KTable.send_old_values", "KTable.view", "GlobalKTable.lookup"}
OF_THE_RUNTIME = {
    "Topology." + name
    for name in ("add_body", "add_repartition_topic", "connect", "copartition", "copartition_groups", "global_stores")
} | {"Topology." + name for name in ("nodes", "repartition_topics", "stores", "subtopologies")}


def objects() -> dict[str, Any]:
    """One object of each class of the DSL, by the class's name."""
    builder = mp.StreamsBuilder()
    stream, table = builder.stream("in", key=mp.String, value=mp.String), builder.table("rows")
    grouped = stream.group_by_key()
    cogrouped = grouped.cogroup(lambda key, value, total: total + 1)
    made = [
        builder, mp.Topology(), mp.TimeWindows(timedelta(hours=1)), stream, table, builder.global_table("all"), grouped,
        stream.split(),
        grouped.windowed_by(mp.TimeWindows(timedelta(hours=1))),
        grouped.windowed_by(mp.SessionWindows(timedelta(hours=1))),
        cogrouped, cogrouped.windowed_by(mp.TimeWindows(timedelta(hours=1))),
        cogrouped.windowed_by(mp.SessionWindows(timedelta(hours=1))),
        table.group_by(lambda key, value: (key, value)),
    ]  # fmt: skip
    return {type(each).__name__: each for each in made}


def owner_of(name: str) -> tuple[Any, str]:
    """The object that has an attribute of the page, and the attribute."""
    owner, _, attribute = name.rpartition(".")
    return {"mp": mp, "testing": mp.testing, **objects()}[owner], attribute


def test_every_missing_name_is_missing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """hasattr() is False, getattr() returns its default, and the error names the page."""
    monkeypatch.setitem(NOT_YET, "KStream", ("sort",))
    for name in (f"{owner}.{name}" for owner, names in NOT_YET.items() for name in names):
        owner, attribute = owner_of(name)
        assert not hasattr(owner, attribute), f"{name} is there: remove it from NOT_YET in worker/millpond/names.py"
        assert getattr(owner, attribute, None) is None
        assert attribute not in dir(owner)
        with pytest.raises(
            AttributeError, match=f"^{re.escape(name)} is not there yet; {re.escape(PAGE)} says what is missing"
        ):
            getattr(owner, attribute)


def test_every_method_of_a_dsl_class_is_of_kafka_streams_or_said_to_be_own() -> None:
    """The page has every public method of the DSL's classes: under its name in Kafka Streams, or as millpond's own."""
    found = inventory.read()
    told = {
        f"{owner.name}.{name}"
        for owner in found.classes.values()
        for member in owner.members
        for name in {places.snake(member.name), *NAME.findall(places.place(owner, member).text)}
    } | {name for name in places.read().own if name[0].isupper()}
    public = {
        f"{name}.{each}"
        for name, made in objects().items()
        for each in dir(type(made))
        if not each.startswith("_") and not name.endswith("Windows")
    }
    apart = public - told - OF_OPERATORS - OF_THE_RUNTIME
    assert not apart, f"say in tests/parity/places.toml what {sorted(apart)} are"


LOOKED_FOR: dict[str, str] = {
    "KStream.mapValues": "KStream has no mapValues: it is called map_values here.",
    "StreamsBuilder.globalTable": "StreamsBuilder has no globalTable: it is called global_table here.",
    "KTable.leftJoin": "KTable has no leftJoin: it is called left_join here.",
    "KTable.transformValues": "KTable has no transformValues: it is called transform_values here.",
    "KTable.to": "KTable has no to: streams have it, and to_stream() makes one of the table.",
    "KTable.count": "group the table first, by group_by()",
    "KStream.count": "group the stream first, by group_by_key() or group_by()",
    "KStream.transformValues": "process_values() takes its place",
    "KStream.branch": "split().branch(…) takes its place",
    "KGroupedStream.toStream": "it is only grouped; call count(), reduce() or aggregate() on it first",
    "TimeWindowedKStream.to": "it is only grouped",
    "KGroupedTable.filter": "it is only grouped",
    "GlobalKTable.filter": "a global table is only joined: stream.join(table, …, on=…)",
    "BranchedKStream.to": "the branches are what default_branch() or no_default_branch() return",
    "TimeWindows.advanceBy": "TimeWindows has no advanceBy: it is called advance_by here.",
    "KStream.filer": "did you mean 'filter'?",
    "mp.Serdes": "serdes are mp.String, mp.Long, mp.Json(Type) and so on",
    "mp.Consumed": "options are keyword arguments of the operator, such as stream(…, key=…, value=…)",
    "mp.KafkaStreams": "`millpond run`",
    "mp.TopologyTestDriver": "it is in millpond.testing",
    "mp.ValueJoiner": "a function takes its place, with the same arguments",
    "mp.TimeWindowedDeserializer": "mp.TimeWindowedSerde is both",
    "mp.AutoOffsetReset": "stream(…, reset=…)",
    "GlobalKTable.queryableStoreName": "it is called store_name here",
    "Topology.connectProcessorAndStateStores": "it is called connect() here",
    "mp.Nonsense": PAGE,
}


@pytest.mark.parametrize("name", LOOKED_FOR)
def test_names_of_kafka_streams_lead_to_what_takes_their_place(name: str) -> None:
    """The error for a name of Kafka Streams has the name that it has here."""
    owner, attribute = owner_of(name)
    with pytest.raises(AttributeError, match=re.escape(LOOKED_FOR[name])):
        getattr(owner, attribute)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("addStreamThread", "a worker has one processing thread; start more workers instead"),
        ("setStateListener", "give a WorkerListener to Worker(topology, config, listener)"),
        ("queryMetadataForKey", "millpond.queries.Client finds the worker of a key by itself"),
        ("isPaused", "it is called is_paused here"),
    ],
)
def test_names_of_kafka_streams_lead_from_a_worker_to_what_takes_their_place(
    name: str, cure: str, tmp_path: Path
) -> None:
    """Also of methods of KafkaStreams, which is a Worker here."""
    config = mp.Config.of({"application.id": "app", "bootstrap.servers": "none:1", "state.dir": str(tmp_path)})
    with pytest.raises(AttributeError, match=re.escape(cure)):
        getattr(mp.Worker(mp.Topology().add_source("views", "views", key=mp.String, value=mp.String), config), name)


def test_lookups_of_python_itself_are_undisturbed() -> None:
    """Copies, pickles, type hints, documentation and inspection look up missing names, too, and still work."""
    for made in objects().values():
        assert not hasattr(made, "__wrapped__")
        assert type(copy.copy(made)) is type(made)
        assert inspect.getdoc(made)
        assert inspect.getmembers(type(made))
    assert pickle.loads(pickle.dumps(mp.String.name)) == "String"
    assert inspect.signature(mp.KStream.filter).parameters.keys() == {"self", "predicate", "name"}
    assert get_type_hints(mp.TimeWindows)["size"]
    assert "KafkaStreams" not in dir(mp)
    assert not any(hasattr(mp, name) for names in NOT_YET.values() for name in names if name[0].isupper())
    with pytest.raises(ImportError, match=r"mp has no KafkaStreams: mp\.Worker takes its place"):
        exec("from millpond import KafkaStreams")


def test_page_is_linked_from_where_readers_begin() -> None:
    """The index of the documentation, the README and the page about names link to it."""
    assert re.search(r"^differences$", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    assert PAGE in (ROOT / "README.md").read_text()
    assert "(differences.md)" in (ROOT / "docs/kafka-streams-names.md").read_text()
