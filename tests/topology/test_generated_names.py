"""`ensure.explicit.internal.resource.naming`: topologies with generated names are refused, or lead to a warning."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import millpond as mp
from millpond.errors import TopologyError
from millpond.testing import TopologyTestDriver
from millpond.topology.settings.unnamed import warn_of_names

SETTING = "ensure.explicit.internal.resource.naming"
REFUSED = (
    rf"^{SETTING} is true, but names are generated for changelogs KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog; "
    r"stores KSTREAM-AGGREGATE-STATE-STORE-0000000002; repartition topics "
    r"KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition; name stores with store=, and the operators that make "
    r"topics with name=\.$"
)


def counting(*, named: bool) -> mp.StreamsBuilder:
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    if named:
        stream.group_by(lambda _key, value: value, key=mp.String, name="by-value").count(store="counts")
    else:
        stream.group_by(lambda _key, value: value, key=mp.String).count()
    return builder


def test_generated_names_are_refused_when_the_topology_is_built() -> None:
    """The message lists all of them."""
    with pytest.raises(TopologyError, match=REFUSED):
        counting(named=False).build(explicit_names=True)
    counting(named=True).build(explicit_names=True)


@pytest.mark.parametrize("start", ["driver", "worker"])
def test_the_setting_refuses_generated_names_before_anything_starts(start: str, tmp_path: Path) -> None:
    """No topic is made."""
    settings = {"application.id": "app", "bootstrap.servers": "none:1", "state.dir": str(tmp_path), SETTING: "true"}

    def begin(*, named: bool) -> object:
        topology = counting(named=named).build()
        return (
            TopologyTestDriver(topology, settings) if start == "driver" else mp.Worker(topology, mp.Config.of(settings))
        )

    with pytest.raises(TopologyError, match=REFUSED):
        begin(named=False)
    begin(named=True)


def test_generated_names_lead_to_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A worker logs them when it starts; a topology with given names leads to no warning."""
    with caplog.at_level(logging.WARNING):
        warn_of_names(counting(named=True).build().unnamed)
        assert caplog.messages == []
        warn_of_names(counting(named=False).build().unnamed)
    (message,) = caplog.messages
    assert message.startswith("topology: names are generated for changelogs KSTREAM-AGGREGATE-STATE-STORE-0000000002")


def test_stores_without_a_changelog_are_listed_without_one() -> None:
    """As in Kafka Streams, also where a table has no store in the end."""
    builder = mp.StreamsBuilder()
    builder.global_table("all")
    builder.table("rows", logging=False)
    assert str(builder.build().unnamed) == "stores all-STATE-STORE-0000000000, rows-STATE-STORE-0000000003"
