"""`millpond topics`, `produce` and `consume` on a real broker."""

from __future__ import annotations

import io
import json
import re
import signal
import struct
import sys
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from millpond.cli import session_broker
from millpond.cli.dev.status import SessionStatus
from millpond.cli.options import load_config
from millpond.cli.records import produce, reading
from millpond.cli.records.reading import Wanted, admin_of, newest, records
from millpond.errors import BrokerError, TopicError
from millpond.runtime.config.model import Config
from tests.cli.conftest import Ended, Millpond
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker


class _Cluster:
    """The commands, on the broker of the tests."""

    def __init__(self, millpond: Millpond, servers: str) -> None:
        self._millpond = millpond
        self._servers = ("--bootstrap-servers", servers)

    def __call__(self, *arguments: object) -> Ended:
        return self._millpond(*arguments, *self._servers)

    def lines(self, *arguments: object) -> list[dict[str, Any]]:
        """Return the lines of `millpond consume`."""
        ended = self("consume", *arguments)
        assert ended.status == 0, ended.err
        return [json.loads(line) for line in ended.out.splitlines()]


class _Interrupted(io.TextIOWrapper):
    """Standard input at whose end somebody presses Ctrl-C, or ends the command with SIGTERM."""

    def __init__(self, text: bytes, number: signal.Signals) -> None:
        super().__init__(_InterruptedBytes(text, number))


class _InterruptedBytes(io.BytesIO):
    def __init__(self, text: bytes, number: signal.Signals) -> None:
        super().__init__(text)
        self._number = number

    def readline(self, size: int | None = -1, /) -> bytes:
        text = super().readline(size)
        if not text:
            signal.raise_signal(self._number)
        return text


@pytest.fixture
def cluster(millpond: Millpond, broker: Broker) -> _Cluster:
    return _Cluster(millpond, broker.bootstrap_servers)


def test_records_are_written_and_shown_as_json_lines(
    cluster: _Cluster, create_topic: CreateTopic, tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown can be written to another topic as it is, and has the same bytes there, in the same partitions."""
    topic, copy = create_topic("orders", partitions=2), create_topic("copy", partitions=2)
    records = [
        {"key": "a", "value": {"n": 1}, "timestamp": 1_000, "partition": 0},
        {"key": "b", "value": "text", "timestamp": 2_000, "partition": 1, "headers": [["x", "1"], ["x", None]]},
        {"key": None, "value": None, "timestamp": 3_000, "partition": 0},
        {"key": "a", "value": {"n": 2}, "timestamp": 1_500, "partition": 0},
    ]
    written = tmp_path / "orders.jsonl"
    written.write_text("\n".join(map(json.dumps, records)))
    assert "4 records written" in cluster("produce", topic, written).err
    shown = sorted(cluster.lines(topic), key=lambda line: (line["partition"], line["offset"]))
    given = [*records[::2], records[3], records[1]]
    assert [{name: line[name] for name in each} for line, each in zip(shown, given, strict=True)] == given
    assert [line["offset"] for line in shown] == [0, 1, 2, 0]
    assert {line["timestamp"] for line in cluster.lines(topic, "--from", "1500", "--until", "3000")} == {1_500, 2_000}
    assert [line["value"] for line in cluster.lines(topic, "--key-is", "a")] == [{"n": 1}, {"n": 2}]
    assert [line["offset"] for line in cluster.lines(topic, "--partition", 0, "--max", 2)] == [0, 1]
    assert cluster.lines(topic, "--from", "now") == []

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(cluster("consume", topic).out.encode())))
    assert cluster("produce", copy, "--keep-partitions").status == 0
    assert kafka.read(broker.bootstrap_servers, copy) == kafka.read(broker.bootstrap_servers, topic)

    rows = {row["topic"]: row for row in json.loads(cluster("topics", "--json").out)["topics"]}
    assert rows[topic] == {"topic": topic, "partitions": 2, "records": 4, "cleanupPolicy": "delete"}
    assert [row["records"] for row in json.loads(cluster("topics", topic, "--json").out)["partitions"]] == [3, 1]


def test_a_long_name_hides_no_figure_in_a_narrow_terminal(
    cluster: _Cluster, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes several lines; partitions and records of all topics stay."""
    long, short = create_topic(f"{'long-' * 20}repartition", partitions=3), create_topic("short", partitions=2)
    monkeypatch.setenv("COLUMNS", "80")
    shown = cluster("topics").out
    assert re.search(rf"^{long[:16]}.* 3 +0 ", shown, re.MULTILINE)
    assert re.search(rf"^{short} +2 +0 ", shown, re.MULTILINE)


def test_a_dead_letter_that_is_sent_again_reaches_the_partition_of_its_key(
    cluster: _Cluster, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in another partition of the dead-letter topic, with headers that tell of its error."""
    topic, dead = create_topic("orders", partitions=4), create_topic("orders-dead", partitions=2)

    def produce(target: str, text: str, *options: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        ended = cluster("produce", target, *options)
        assert ended.status == 0, ended.err
        return ended.err

    produce(topic, '{"key": "ann", "value": {"price": 1}}')
    (before,) = cluster.lines(topic)
    letter = {
        "key": "ann", "value": {"price": "one"}, "topic": dead, "partition": (before["partition"] + 1) % 2,
        "headers": {"__streams.errors.message": "no price", "trace": "7f"},
    }  # fmt: skip
    produce(dead, json.dumps(letter))
    (shown,) = cluster.lines(dead, "--max", 1)
    assert (shown["topic"], shown["partition"]) == (dead, letter["partition"])
    said = produce(topic, json.dumps({**shown, "value": {"price": 2}}))
    assert f"1 line was read from {dead}: the partition is chosen by key" in said
    assert "headers __streams.errors.* are left out" in said
    (_, again) = cluster.lines(topic)
    assert (again["partition"], again["headers"]) == (before["partition"], [["trace", "7f"]])


def test_a_wrong_line_ends_the_command_after_the_lines_before_it(
    cluster: _Cluster, create_topic: CreateTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says which line it is, what is written, and how to go on; going on writes nothing twice."""
    topic, lines = create_topic("orders"), tmp_path / "lines"
    lines.write_text("a:1\nb:2\nc:x\nd:4\n")
    options = (topic, lines, "--key-separator", ":", "--value", "long")
    ended = cluster("produce", *options)
    assert ended.status == 1
    assert "line 3: 'x' is no value of Long" in ended.err
    assert f"2 records went to {topic}" in ended.err
    assert "--from-line 3" in ended.err
    lines.write_text("a:1\nb:2\nc:3\nd:4\n")
    assert cluster("produce", *options, "--from-line", 3).status == 0
    assert [line["value"] for line in cluster.lines(topic, "--value", "long")] == [1, 2, 3, 4]
    wrong = cluster("consume", topic, "--value", "int", "--max", 1)
    (line,) = [json.loads(each) for each in wrong.out.splitlines()]
    assert line["value"] == {"base64": "AAAAAAAAAAE="}
    assert "Int cannot decode 8 bytes" in line["error"]
    assert "1 record could not be decoded" in wrong.err
    for number in (signal.SIGINT, signal.SIGTERM):
        monkeypatch.setattr(sys, "stdin", _Interrupted(b"e:5\nf:6\n", number))
        ended = cluster("produce", topic, "--key-separator", ":", "--value", "long")
        assert "interrupted before line 3. Before it, 2 records went to" in ended.err
    lines.write_text("a:" + "x" * 2_000_000)
    assert "line 1: the record cannot be sent" in cluster("produce", topic, lines, "--key-separator", ":").err


class _Refusing:
    """A producer whose broker confirms the first two records, and refuses the others."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        self._sent: list[Any] = []

    def __len__(self) -> int:
        return 3

    def produce(self, *_arguments: object, on_delivery: Any, **_options: object) -> None:
        self._sent.append(on_delivery)

    def poll(self, _timeout: float) -> int:
        if len(self._sent) > 4:
            self.flush(0)
        return 0

    def flush(self, _timeout: float) -> int:
        sent, self._sent = self._sent, []
        for number, told in enumerate(sent):
            told(None if number < 2 else KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
        return 0


def test_failed_records_are_told_with_the_lines_that_were_not_read(
    cluster: _Cluster, create_topic: CreateTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes only the unconfirmed lines again must know that those after them are missing as well."""
    lines = tmp_path / "lines"
    lines.write_text('{"value": 1}\n' * 20)
    monkeypatch.setattr(produce, "Producer", _Refusing)
    ended = cluster("produce", create_topic("orders"), lines)
    assert ended.status == 1
    assert "did not confirm 3 records (line 3: " in ended.err
    assert "; 2 others are written. " in ended.err
    assert "Lines after 5 were not read: go on with --from-line 6." in ended.err


def test_a_timestamp_that_the_topic_does_not_allow_is_told_with_its_line(
    cluster: _Cluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    """The broker names no record, and refuses the whole batch: the line with the wrong timestamp comes first."""
    lines = tmp_path / "lines"
    lines.write_text('\ufeff{"value": 1}\n{"value": 2, "timestamp": 1769860810000000}\n', encoding="utf-8")
    ended = cluster("produce", create_topic("orders", 1), lines)
    assert ended.status == 1
    assert (
        "the broker did not confirm 2 records (line 2: its timestamp 1769860810000000 is too far in the future for the "
        "topic (message.timestamp.after.max.ms); timestamps are in ms, so divide microseconds by 1000; line 1: the "
        "broker refused another record of its batch); no other is written. Correct the cause, and write the "
        "unconfirmed lines again.\n"
    ) in ended.err
    ahead = int(time.time() * 1000) + 7 * 86_400_000  # of several such records the broker does not say even that
    lines.write_text(f'{{"value": 1, "timestamp": {ahead}}}\n' * 3)
    assert f"line 1: its timestamp {ahead} is too far" in cluster("produce", create_topic("later", 1), lines).err


def test_an_interrupt_ends_the_wait_for_a_broker_that_does_not_confirm(
    cluster: _Cluster, create_topic: CreateTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(_Refusing):
        def flush(self, _timeout: float) -> int:
            signal.raise_signal(signal.SIGINT)
            return 3

    lines = tmp_path / "lines"
    lines.write_text('{"value": 1}\n' * 3)
    monkeypatch.setattr(produce, "Producer", Silent)
    ended = cluster("produce", create_topic("orders"), lines)
    assert ended.status == 1
    assert "3 records up to line 3 were not confirmed, and may have been written or not" in ended.err


def test_lines_are_named_as_ranges() -> None:
    assert produce._ranges([1, 3, 4, 5, 9]) == "1, 3-5, 9"


class _Silent:
    """A consumer without records, whose brokers do not answer at first."""

    def __init__(self) -> None:
        self.asked = 0

    def poll(self, _timeout: float) -> None:
        return None

    def list_topics(self, _topic: str, timeout: float) -> SimpleNamespace:
        self.asked += 1
        if self.asked < 3:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={})


def test_brokers_that_do_not_answer_are_told_while_following(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle topic and a broker that is away look alike otherwise. Without --follow it ends the command."""
    monkeypatch.setattr(reading, "_SILENCE_S", -1.0)
    consumer: Any = _Silent()
    wanted = Wanted("orders", follow=True)
    batches = reading._read(consumer, wanted, {0: 0}, {0})
    told = [(next(batches), wanted.unreachable)[1] for _ in range(4)]
    assert [bool(each) for each in told] == [False, True, True, False]
    assert "topic 'orders' cannot be read" in told[1]
    with pytest.raises(BrokerError, match="cannot be read"):
        deque(reading._read(_Silent(), Wanted("orders"), {0: 1}, {0}))  # type: ignore[arg-type]


def test_a_topic_that_is_deleted_while_it_is_read_ends_the_command(broker: Broker, create_topic: CreateTopic) -> None:
    topic = create_topic("orders")
    config = load_config(
        None,
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "consumer.topic.metadata.propagation.max.ms": 100,
            "consumer.topic.metadata.refresh.interval.ms": 200,
        },
        required=(),
    )
    found = reading.records(config, reading.admin_of(config), reading.Wanted(topic, follow=True))
    next(found)
    kafka.delete_topics(broker.bootstrap_servers, [topic])
    with pytest.raises(TopicError, match="was deleted while it was read"):
        deque(found)


def test_only_committed_records_are_shown(
    cluster: _Cluster, create_topic: CreateTopic, broker: Broker, app_id: str
) -> None:
    """Records of an aborted transaction are not shown, and those of an open one are said to be missing."""
    topic = create_topic("orders")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": app_id}, logger=kafka.log)
    producer.init_transactions()
    for value, end in (
        ("aborted", producer.abort_transaction),
        ("committed", producer.commit_transaction),
        ("open", None),
    ):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        if end is not None:
            end()
    kafka.produce(broker.bootstrap_servers, topic, [(None, "behind")])
    ended = cluster("consume", topic)
    assert [json.loads(line)["value"] for line in ended.out.splitlines()] == ["committed"]
    assert "an open transaction holds back records at the end of the partitions 0 (2)" in ended.err
    everything = cluster.lines(topic, "--isolation", "read_uncommitted")
    assert [line["value"] for line in everything] == ["aborted", "committed", "open", "behind"]
    producer.abort_transaction()


def test_the_newest_records_over_all_partitions_are_shown(
    cluster: _Cluster, create_topic: CreateTopic, broker: Broker, app_id: str
) -> None:
    """By their times, those of a partition in their order; aborted records and ends of transactions do not count."""
    topic = create_topic("orders", partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": app_id}, logger=kafka.log)
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, f"aborted {number}", "a", partition=0, timestamp=9_000)
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.produce(topic, f"first {number}", "a", partition=0, timestamp=1_000 + 10 * number)
        producer.produce(topic, f"second {number}", "b", partition=1, timestamp=1_005 - 10 * number)
        producer.commit_transaction()

    kafka.settle(broker.bootstrap_servers, topic)

    def values(*options: object) -> list[str]:
        return [line["value"] for line in cluster.lines(topic, *options)]

    assert values("--last", 1) == ["first 5"]
    assert values("--last", 4) == ["first 2", "first 3", "first 4", "first 5"]
    assert len(values("--last", 100)) == 12
    assert values("--last", 2, "--key-is", "b") == ["second 4", "second 5"]
    assert values("--last", 2, "--partition", 1) == ["second 4", "second 5"]
    assert values("--last", 1, "--until", "1040") == ["first 3"]
    assert values("--last", 1, "--partition", 2) == []

    producer.begin_transaction()
    for number in range(5):
        producer.produce(topic, f"open {number}", partition=0, timestamp=5_000)
    producer.flush()
    ended = cluster("consume", topic, "--last", 2)
    assert [json.loads(line)["value"] for line in ended.out.splitlines()] == ["first 4", "first 5"]
    assert "an open transaction holds back records at the end of the partitions 0 (5)" in ended.err
    producer.abort_transaction()


def test_what_comes_after_the_newest_records_is_followed(create_topic: CreateTopic, broker: Broker) -> None:
    """Without a gap and without a repetition, also what is written in between."""
    topic = create_topic("orders", partitions=2)
    kafka.produce(broker.bootstrap_servers, topic, [("a", "1"), ("a", "2"), ("b", "3")])
    config = Config.of({"application.id": "shown", "bootstrap.servers": broker.bootstrap_servers})
    admin, wanted = admin_of(config), Wanted(topic, follow=True)
    (last,) = newest(config, admin, wanted, 1, lambda message: message.key() == b"a")
    assert last.value() == b"2"
    kafka.produce(broker.bootstrap_servers, topic, [("a", "4"), ("b", "5"), ("c", "6")])
    followed: list[Any] = []
    for batch in records(config, admin, wanted):
        followed += [message.value() for message in batch]
        if len(followed) >= 3:
            break
    assert sorted(followed) == [b"4", b"5", b"6"]


_SHOP = """
import millpond as mp

class Order(mp.Struct):
    price: int

def orders():
    builder = mp.StreamsBuilder()
    orders = builder.stream("{orders}", key=mp.Long, value=mp.Json(Order))
    orders.group_by_key().count(store="counts").to_stream().to("{counts}", key=mp.Long, value=mp.Long)
    return builder.build()
"""


def test_dead_letters_are_shown_with_the_serdes_of_their_source(
    cluster: _Cluster, create_topic: CreateTopic, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with those of the topic that its header names; JSON that caused the error is JSON, with the reason."""
    orders, counts, dead = create_topic("orders"), create_topic("counts"), create_topic("dead")
    (tmp_path / "shop.py").write_text(_SHOP.format(orders=orders, counts=counts))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    key = struct.pack(">q", 7)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers}, logger=kafka.log)
    for source, value in (
        (orders, b'{"price": 3}'),
        (orders, b'{"price": "three"}'),
        (counts, struct.pack(">q", 5)),
        ("elsewhere", b"{}"),
    ):
        headers = [("__streams.errors.stacktrace", b"Traceback"), ("__streams.errors.topic", source.encode())]
        producer.produce(dead, value, key, headers=headers)
        producer.flush()
    letters = cluster.lines(dead, "--application", "shop:orders")
    base64 = {"base64": "AAAAAAAAAAc="}
    assert [line["key"] for line in letters] == [7, 7, 7, base64]
    assert [line["value"] for line in letters] == [{"price": 3}, {"price": "three"}, 5, {}]
    assert ["error" in line for line in letters] == [False, True, False, False]
    assert "Expected `int`, got `str`" in letters[1]["error"]
    assert list(letters[1])[-2:] == ["error", "headers"]
    assert letters[1]["headers"] == [["__streams.errors.topic", orders]]
    said = cluster("consume", dead, "--application", "shop:orders").err
    assert "stack traces of dead letters are left out; --stack-traces shows them" in said
    assert 'correct it, remove "error", and give the line to `millpond produce`' in said
    assert "choose other formats" not in said
    whole = cluster.lines(dead, "--application", "shop:orders", "--stack-traces")
    assert whole[1]["headers"][0] == ["__streams.errors.stacktrace", "Traceback"]
    repaired = {**letters[1], "value": {**letters[1]["value"], "price": 4}}
    del repaired["error"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(repaired).encode())))
    assert cluster("produce", orders, "--application", "shop:orders").status == 0
    (sent,) = cluster.lines(orders, "--application", "shop:orders")
    assert (sent["key"], sent["value"]) == (7, {"price": 4})
    producer.produce(dead, "no letter", key)
    producer.flush()
    ended = cluster("consume", dead, "--application", "shop:orders")
    assert ended.status == 2
    assert f"neither reads nor writes topic '{dead}'" in ended.err


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["consume", "no-such-topic-at-all"], "does not exist"),
        (["produce", "no-such-topic-at-all"], "--create PARTITIONS creates it"),
        (["produce", "app-counts-changelog"], "only its application writes"),
        (["consume", "x", "--follow", "--until", "1h"], "leave out one of them"),
        (["consume", "x", "--from", "soon"], "is no time"),
        (["consume", "x", "--last", "3", "--max", "2"], "leave out one of them"),
        (["consume", "x", "--application", "a:b", "--value", "long"], "--application gives the formats"),
        (["consume", "x", "--window", "1"], "is not a duration"),
        (["topics", "--session", "x"], "exclude each other"),
    ],
)
def test_mistakes_are_told(
    cluster: _Cluster, arguments: list[str], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    ended = cluster(*arguments)
    assert ended.status in (1, 2)
    assert cause in ended.err


def test_a_session_and_a_configuration_with_different_brokers_are_not_mixed_up(
    millpond: Millpond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an option that chooses, nothing is read or written."""
    status = SessionStatus(application="a", title="a", guarantee="", bootstrap_servers="b:1", directory="")
    monkeypatch.setattr(session_broker, "sessions", lambda: [None])
    monkeypatch.setattr(session_broker, "Remote", lambda _file: SimpleNamespace(status=lambda: status))
    monkeypatch.setenv("MILLPOND_BOOTSTRAP_SERVERS", "c:2")
    ended = millpond("consume", "orders")
    assert (ended.status, ended.out) == (2, "")
    assert "choose by --bootstrap-servers or --session" in ended.err


def test_without_a_broker_the_commands_say_how_to_name_one(
    millpond: Millpond, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    ended = millpond("topics")
    assert ended.status == 2
    assert "no broker is known: start `millpond dev`" in ended.err
