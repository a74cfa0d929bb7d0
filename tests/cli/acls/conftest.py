"""An application on a broker that denies by default, with the rules that `millpond acls` prints."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from millpond.cli.application import load_topology
from tests.cli.conftest import Application, Millpond
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.broker import OwnBroker
from tests.support.secured.denying_broker import DenyingBroker, Rule, denying_broker, rules_of

APP = """
    import os
    from datetime import timedelta

    import millpond as mp

    def build():
        name = os.environ["NAME"]
        builder = mp.StreamsBuilder()
        labels = builder.global_table(f"{name}.labels", key=mp.String, value=mp.String)
        (
            builder.stream(f"{name}.in", key=mp.String, value=mp.Long)
            .left_join(labels, lambda number, label: label or str(number), on=lambda _, number: str(number))
            .group_by(lambda _, label: label, key=mp.String, value=mp.String, name="by-label")
            .windowed_by(mp.TimeWindows(timedelta(days=1), grace=timedelta(days=1)))
            .count(store="counts", caching=False)
            .to_stream(lambda windowed, _: windowed.key)
            .to(f"{name}.out", key=mp.String, value=mp.Long)
        )
        return builder.build()

    def silent():
        builder = mp.StreamsBuilder()
        builder.stream(f"{os.environ['NAME']}.in", key=mp.String, value=mp.Long).foreach(lambda *_: None)
        return builder.build()
"""
TOPICS = ("in", "labels", "out", "dead")


@pytest.fixture(scope="module")
def guarded(own_brokers: type[OwnBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DenyingBroker]:
    """A broker that denies by default."""
    with denying_broker(own_brokers, tmp_path_factory.mktemp("broker"), ("alice", "bob")) as made:
        yield made


def options_of(settings: Mapping[str, str]) -> list[str]:
    """Return settings as options of a command."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


class Scene:
    """An application with its topics, its settings and the rights that the command prints."""

    def __init__(self, guarded: DenyingBroker, name: str, target: str, millpond: Millpond) -> None:
        self.guarded = guarded
        self.name = name
        self.target = target
        self.millpond = millpond
        self.settings = {
            **guarded.settings("alice"),
            "application.id": name,
            "processing.guarantee": "exactly_once",
            "errors.dead.letter.queue.topic.name": f"{name}.dead",
            "deserialization.exception.handler": "continue",
            "repartition.purge.interval.ms": "200",
        }
        for topic in TOPICS:
            kafka.create_topic(guarded.bootstrap_servers, f"{name}.{topic}")

    @property
    def options(self) -> list[str]:
        """The settings as options of a command."""
        return options_of(self.settings)

    def rules(self, *options: str, user: str = "alice") -> list[Rule]:
        """Return the rules that the command prints for a user."""
        ended = self.millpond("acls", self.target, "--principal", f"User:{user}", *options, *self.options)
        assert ended.status == 0, ended.err
        return rules_of(ended.out, f"User:{user}")

    def worker(self, state_dir: Path, **settings: str) -> Running:
        """Return a worker that is not started, of alice, or of another user by the settings."""
        given = {**self.settings, **{key.replace("_", "."): value for key, value in settings.items()}}
        return Running(load_topology(self.target), given.pop("bootstrap.servers"), self.name, state_dir, given)

    def named(self, rule: Rule) -> tuple[str, str, str]:
        """Return a rule with `{}` in the place of the application's name, and `*` after the beginning of names."""
        kind, resource, prefixed, operation = rule
        shown = "".join(each.capitalize() for each in operation.name.lower().split("_"))
        return kind.name.lower(), resource.replace(self.name, "{}") + ("*" if prefixed else ""), shown

    def produce(self, count: int, first: int = 0) -> None:
        """Write numbers, and a record that is none."""
        records: list[tuple[bytes, bytes]] = [
            (b"k", struct.pack(">q", each % 3)) for each in range(first, first + count)
        ]
        kafka.produce(self.guarded.bootstrap_servers, f"{self.name}.in", [*records, (b"k", b"bad")])

    def counts(self) -> Counter[str]:
        """Return the last count of each number."""
        rows = kafka.read(self.guarded.bootstrap_servers, f"{self.name}.out")
        return Counter({(row.key or b"").decode(): struct.unpack(">q", row.value or b"")[0] for row in rows})


@pytest.fixture
def scene(
    guarded: DenyingBroker, app_id: str, application: Application, millpond: Millpond, monkeypatch: pytest.MonkeyPatch
) -> Scene:
    """The application, without any right."""
    monkeypatch.setenv("NAME", app_id)
    return Scene(guarded, app_id, f"{application(APP)}:build", millpond)
