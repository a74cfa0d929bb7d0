"""A Java application and a millpond worker take turns on one application id; each continues where the other stopped."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest

from millpond.broker import EmbeddedBroker
from millpond.dsl.operators.window_join import times
from millpond.dsl.operators.windowing import finals
from tests.chaos.operators.sums import wrong_sums
from tests.support import choices, kafka
from tests.turns.taking_turns import PARTITIONS, Turns, compiled, describe, draw_records
from tests.turns.topology import ANY_ORDER, FOREIGN, INPUTS, LAST_OF_KEY, OUTPUTS, SENT_AGAIN, topology

TURNS = ("java", "millpond", "java", "millpond", "java", "millpond", "java")
RECORDS_PER_TURN = 60


@pytest.fixture(scope="module")
def java_side(processes: None, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the Java side."""
    return compiled(tmp_path_factory.mktemp("classes"))


def test_both_sides_have_the_same_topology(java_side: list[str]) -> None:
    """Names of nodes, stores and topics are equal, so each side finds the other's changelogs."""
    assert str(topology().describe()) == describe(java_side)


@pytest.fixture
def results_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let closed windows be sent with the next record, as in the Java side, instead of once in a second."""
    monkeypatch.setattr(finals, "_DEFAULT_INTERVAL_MS", 0)
    monkeypatch.setattr(times, "_DEFAULT_EMIT_INTERVAL_MS", 0)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("results_at_once")
def test_taking_turns_changes_no_result(
    own_brokers: type[EmbeddedBroker], java_side: list[str], seed: int, tmp_path: Path
) -> None:
    """Three cut-overs each way, at random records: the output is that of an application that never moved."""
    chance = random.Random(seed)
    records = draw_records(seed, RECORDS_PER_TURN * len(TURNS))
    choices.record(f"records of turns with seed {seed}", records)
    with own_brokers(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        for topic in INPUTS:
            kafka.create_topic(servers, topic, 1 if topic == "global" else PARTITIONS)
        for prefix in ("moving-", "staying-"):
            for name in OUTPUTS:
                kafka.create_topic(servers, f"out-{prefix}{name}", PARTITIONS)
        kafka.produce(servers, "global", [(str(digit), f"g{digit}", 1) for digit in range(8)])
        moving = Turns(servers, java_side, "moving", "out-moving-", tmp_path)
        for number, side in enumerate(TURNS):
            chunk = records[number * RECORDS_PER_TURN : (number + 1) * RECORDS_PER_TURN]
            before = moving.produced
            moving.produce(chunk)
            last = number == len(TURNS) - 1
            moving.run(
                side, moving.done if last else partial(moving.got_to, chance.randint(before + 1, moving.produced))
            )
        staying = Turns(servers, java_side, "staying", "out-staying-", tmp_path / "staying")
        staying.run("java", staying.done)
        different = [
            f"{name}, key {key!r}: {expected.get(key)} without moves, {found.get(key)} with them"
            for name in OUTPUTS
            if name not in FOREIGN
            for expected, found in [[_results(servers, f"out-{side}-{name}", name) for side in ("staying", "moving")]]
            for key in sorted({*expected, *found})
            if expected.get(key) != found.get(key)
        ]
        tables = {name: kafka.read(servers, name) for name in ("table", "other")}
        different += [
            f"{name}, {side}: {what}"
            for name in sorted(FOREIGN)
            for side in ("staying", "moving")
            for what in wrong_sums(name, kafka.read(servers, f"out-{side}-{name}", settled=True), tables)
        ]
        assert not different, "\n".join(different)


def _results(servers: str, topic: str, name: str) -> dict[bytes, list[object]]:
    """Return what each key got, in order: values, timestamps and headers, or only the last value."""
    found: dict[bytes, list[object]] = defaultdict(list)
    for row in kafka.read(servers, topic, settled=True):
        if name in LAST_OF_KEY:
            found[row.key or b""] = [row.value]
        elif name not in SENT_AGAIN or (row.value, row.timestamp, row.headers) not in found[row.key or b""]:
            found[row.key or b""].append((row.value, row.timestamp, row.headers))
    if name in ANY_ORDER:
        return {key: sorted(results, key=repr) for key, results in found.items()}
    return dict(found)
