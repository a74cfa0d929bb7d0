"""docs/differences.md agrees with the code, and so do the errors for missing names."""

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
from millpond.names import MODULE, NOT_YET, PAGE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text()
THERE, MISSING = (
    TEXT.split(f"## {title}\n")[1].split("\n## ")[0] for title in ("What is there", "What is not there yet")
)
NAME = re.compile(r"`((?:mp|testing|[A-Z]\w+)\.[A-Za-z]\w*)`")
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


def names_missing() -> list[str]:
    """The missing names in the first column of the table."""
    rows = [line.split("|")[1] for line in MISSING.splitlines() if line.startswith("| `")]
    return NAME.findall(" ".join(rows))


@pytest.mark.parametrize("name", NAME.findall(THERE))
def test_every_name_listed_as_there_exists(name: str) -> None:
    """A missing name is missing in its package or class."""
    owner, attribute = owner_of(name)
    assert hasattr(owner, attribute)


@pytest.mark.parametrize("name", names_missing())
def test_every_name_listed_as_missing_is_missing_and_says_so(name: str) -> None:
    """hasattr() is False, getattr() returns its default, and the error names the page."""
    owner, attribute = owner_of(name)
    assert not hasattr(owner, attribute), f"{name} is there: in {PAGE}, move it to the table 'What is there'"
    assert getattr(owner, attribute, None) is None
    assert attribute not in dir(owner)
    with pytest.raises(
        AttributeError, match=f"^{re.escape(name)} is not there yet; {re.escape(PAGE)} says what is missing"
    ):
        getattr(owner, attribute)


def test_page_and_table_of_missing_names_agree() -> None:
    """The page and the table have the same missing names."""
    table = {f"{'mp' if owner == MODULE else owner}.{name}" for owner, names in NOT_YET.items() for name in names}
    apart = sorted(set(names_missing()) ^ table)
    assert not apart, f"only one of {PAGE} and NOT_YET in worker/millpond/names.py has {apart} as missing"


def test_page_has_every_public_name() -> None:
    """The page has every public name of the package and every method of the DSL's classes."""
    public = {f"mp.{name}" for name in mp.__all__} - {"mp.__version__", "mp.testing"}
    for name, made in objects().items():
        cls = type(made)
        if cls is mp.TimeWindows:
            continue
        public |= {f"{name}.{each}" for each in dir(cls) if not each.startswith("_")} | (
            {f"{name}.store_name"} if name == "GlobalKTable" else set()
        )
    unlisted = public - set(NAME.findall(THERE)) - OF_OPERATORS - OF_THE_RUNTIME
    assert not unlisted, f"add {sorted(unlisted)} to the table 'What is there' in {PAGE}"


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
    "mp.Nonsense": PAGE,
}


@pytest.mark.parametrize("name", LOOKED_FOR)
def test_names_of_kafka_streams_lead_to_what_takes_their_place(name: str) -> None:
    """The error for a name of Kafka Streams has the name that it has here."""
    owner, attribute = owner_of(name)
    with pytest.raises(AttributeError, match=re.escape(LOOKED_FOR[name])):
        getattr(owner, attribute)


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
    with pytest.raises(ImportError, match="cannot import name 'KafkaStreams'"):
        exec("from millpond import KafkaStreams")


def test_page_is_linked_from_where_readers_begin() -> None:
    """The index of the documentation, the README and the page about names link to it."""
    assert re.search(r"^differences$", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    assert PAGE in (ROOT / "README.md").read_text()
    assert "(differences.md)" in (ROOT / "docs/kafka-streams-names.md").read_text()
