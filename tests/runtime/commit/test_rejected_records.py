"""A record that the client or the broker rejects: the production handler decides about it, and nothing else is lost."""

from __future__ import annotations

import time

import pytest

import millpond as mp
from millpond.state import StateFile
from tests.runtime.running import GUARANTEES, Running, failure_of, run_until
from tests.support import kafka

LIMIT = 4_000
CONTINUE = {"production.exception.handler": "continue"}


def inflate(source, target, pause_s=0.0):
    """Repeat the text of each value as often as the number after its colon: `x:5000` becomes 5,000 bytes."""

    def inflated(text):
        time.sleep(pause_s)
        return text.partition(":")[0] * int(text.partition(":")[2])

    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).map_values(inflated, value=mp.String).to(target)
    return builder.build()


def numbered(count, large):
    """Records 0..count-1; those in `large` have a value of `large[number]` bytes after processing."""
    return [(f"k{each}", f"x:{large.get(each, 10)}", 1_000 + each) for each in range(count)]


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("where", ["broker", "client"])
def test_a_record_too_large_stops_the_worker_by_default(broker, create_topic, app_id, tmp_path, where, guarantee):
    """The error names source record, size, topic and setting, and the source's offset is not committed."""
    limit = {"max_message_bytes": str(LIMIT)} if where == "broker" else {}
    source, target = create_topic("in"), create_topic("out", **limit)
    size = LIMIT * 2 if where == "broker" else 1_500_000
    kafka.produce(broker.bootstrap_servers, source, numbered(20, {13: size}))
    settings = {"processing.guarantee": guarantee}
    error = failure_of(inflate(source, target), broker.bootstrap_servers, app_id, tmp_path, settings)
    for part in (f"{source}-0 offset 13", f"{size + 3} bytes", f"'{target}'", "production.exception.handler"):
        assert part in str(error)
    assert kafka.committed_offsets(broker.bootstrap_servers, app_id, source)[0][0] <= 13


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("where", ["broker", "client"])
def test_continue_drops_exactly_the_records_that_are_too_large(
    broker, create_topic, app_id, tmp_path, where, guarantee
):
    """All others are delivered, with exactly once only once, and the source of each dropped one is a dead letter."""
    limit = {"max_message_bytes": str(LIMIT)} if where == "broker" else {}
    source, target, letters = create_topic("in"), create_topic("out", **limit), create_topic("dead")
    size = LIMIT * 2 if where == "broker" else 1_500_000
    large = {13: size, 200: size, 201: size}
    records = numbered(300, large)
    servers = broker.bootstrap_servers
    kafka.produce(servers, source, records)
    settings = {
        **CONTINUE, "processing.guarantee": guarantee, "errors.dead.letter.queue.topic.name": letters,
    }  # fmt: skip
    kept = [key.encode() for number, (key, _, _) in enumerate(records) if number not in large]
    wanted = [records[number][0].encode() for number in large]

    def through(rows):
        """The offsets are committed, and the transaction markers are written, which takes a little longer."""
        committed = kafka.committed_offsets(servers, app_id, source)[0][0]
        return committed == len(records) and len({row.key for row in rows}) == len(kept)

    rows = run_until(inflate(source, target), servers, app_id, tmp_path, target, through, settings)
    kafka.eventually(lambda: len(kafka.read(servers, letters)) >= len(wanted), "the dead letters can be read")
    dead = [row.key for row in kafka.read(servers, letters)]
    if guarantee == "exactly_once":
        assert [row.key for row in rows] == kept
        assert dead == wanted
    else:
        assert {row.key for row in rows} == set(kept)
        assert set(dead) == set(wanted)


def test_rejection_is_found_while_more_is_being_sent(broker, create_topic, app_id, tmp_path):
    """The client rejects later records for another reason; the handler is called for the one record."""
    source, target = create_topic("in"), create_topic("out", max_message_bytes="100000")
    records, servers = numbered(400, {13: 150_000}), broker.bootstrap_servers
    kafka.produce(servers, source, records)
    settings = {**CONTINUE, "processing.guarantee": "exactly_once", "commit.interval.ms": 500}
    with Running(inflate(source, target, pause_s=0.0005), servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: len(kafka.read(servers, target)) == len(records) - 1, "all others are there")
    assert [row.key for row in kafka.read(servers, target)] == [
        key.encode() for number, (key, _, _) in enumerate(records) if number != 13
    ]
    assert running.worker.metrics.recoveries == 2
    labels = {"application_id": app_id, "worker": "w0", "reason": "error"}
    assert running.worker.metrics.registry.get_sample_value("millpond_worker_commit_failures_total", labels) == 2


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_small_batch_limit_delivers_every_record(broker, create_topic, app_id, tmp_path, guarantee):
    """A topic with a small limit gets small batches: no record is dropped, and no handler is called."""
    source, target = create_topic("in"), create_topic("out", max_message_bytes="70000")
    records = numbered(1_200, {})
    records = [(key, "x:500", timestamp) for key, _, timestamp in records]
    kafka.produce(broker.bootstrap_servers, source, records)
    rows = run_until(
        inflate(source, target), broker.bootstrap_servers, app_id, tmp_path, target,
        lambda rows: len({row.key for row in rows}) == len(records), {"processing.guarantee": guarantee},
    )  # fmt: skip
    if guarantee == "exactly_once":
        assert [row.key.decode() for row in rows] == [key for key, _, _ in records]


def test_null_key_for_a_compacted_topic_calls_the_handler(broker, create_topic, app_id, tmp_path):
    """The broker accepts no such record: CONTINUE drops it alone, FAIL gives the reason."""
    source, target = create_topic("in"), create_topic("out", cleanup_policy="compact")
    kafka.produce(broker.bootstrap_servers, source, [("a", "1"), (None, "2"), ("c", "3")])
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(target)
    topology = builder.build()
    error = failure_of(topology, broker.bootstrap_servers, app_id, tmp_path, {"processing.guarantee": "exactly_once"})
    assert f"{source}-0 offset 1" in str(error)
    settings = {**CONTINUE, "processing.guarantee": "exactly_once"}
    rows = run_until(topology, broker.bootstrap_servers, app_id, tmp_path, target, 2, settings)
    assert [row.key for row in rows] == [b"a", b"c"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rejected_changelog_record_stops_the_worker_despite_continue(broker, create_topic, app_id, tmp_path, guarantee):
    """Without the record, the changelog could not restore the state, so CONTINUE does not apply."""
    source = create_topic("in")
    servers = broker.bootstrap_servers
    kafka.create_topic(
        servers, f"{app_id}-longest-changelog", 1, {"cleanup.policy": "compact", "max.message.bytes": str(LIMIT)}
    )
    kafka.produce(servers, source, [("a", "x" * 10), ("a", "x" * LIMIT)])
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.group_by_key().reduce(lambda old, new: old + new, store="longest")
    settings = {**CONTINUE, "processing.guarantee": guarantee, "commit.interval.ms": 500}
    error = failure_of(builder.build(), servers, app_id, tmp_path, settings)
    assert f"'{app_id}-longest-changelog'" in str(error)
    assert "max.message.bytes" in str(error)
    assert kafka.committed_offsets(servers, app_id, source)[0][0] <= 1


def test_unknown_topic_of_a_record_calls_the_handler(broker, create_topic, app_id, tmp_path):
    """CONTINUE drops the records for it, and no others."""
    source, target = create_topic("in"), create_topic("out")
    kafka.produce(broker.bootstrap_servers, source, [("a", "1"), ("nowhere", "2"), ("c", "3")])
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.to(lambda key, _value, _context: "no-such-topic" if key == "nowhere" else target)
    error = failure_of(builder.build(), broker.bootstrap_servers, app_id, tmp_path)
    assert "'no-such-topic' does not exist" in str(error)
    rows = run_until(builder.build(), broker.bootstrap_servers, app_id, tmp_path, target, 2, CONTINUE)
    assert {row.key for row in rows} == {b"a", b"c"}


def keep(source):
    """Keep the inflated value of each key in a table; there is no other output."""
    builder = mp.StreamsBuilder()
    (
        builder.stream(source, key=mp.String, value=mp.String)
        .map_values(lambda text: text.partition(":")[0] * int(text.partition(":")[2]), value=mp.String)
        .group_by_key()
        .reduce(lambda _, new: new, store="kept")
    )
    return builder.build()


@pytest.mark.share(2)
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("where", ["broker", "client"])
def test_rejected_changelog_record_is_never_dropped(broker, create_topic, app_id, tmp_path, where, guarantee):
    """The worker stops despite the handler. With a larger limit it continues, and state and changelog agree."""
    source, servers = create_topic("in"), broker.bootstrap_servers
    changelog = f"{app_id}-kept-changelog"
    size = LIMIT * 2 if where == "broker" else 1_500_000
    kafka.produce(servers, source, [("a", "x:10", 1_000), ("b", "y:10", 1_001)])
    settings = {**CONTINUE, "processing.guarantee": guarantee}
    if where == "broker":
        settings["topic.max.message.bytes"] = str(LIMIT)
    with Running(keep(source), servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == 2, "both are committed")
    kafka.produce(servers, source, [("b", f"z:{size}", 1_002)])
    error = failure_of(keep(source), servers, app_id, tmp_path, settings)
    limit = LIMIT if where == "broker" else 1_000_000
    for part in (
        "store 'kept'",
        "key b'b'",
        f"{size + 1} bytes",
        f"'{changelog}'",
        f"{limit} bytes",
        "max.message.bytes",
    ):
        assert part in str(error)
    assert kafka.committed_offsets(servers, app_id, source)[0][0] == 2
    with StateFile(tmp_path / app_id / "w0") as file:
        rows = dict(file.range("kept", b"", None))
    assert [row[8:] for row in rows.values()] == [b"x" * 10, b"y" * 10]
    kafka.alter_topic(servers, changelog, **{"max.message.bytes": "2000000"})
    settings["producer.message.max.bytes"] = 2_000_000
    with Running(keep(source), servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == 3, "the large one is committed")
    newest = {row.key: row.value for row in kafka.read(servers, changelog, settled=True)}
    assert {key: value[-1:] for key, value in newest.items()} == {b"a": b"x", b"b": b"z"}
    assert len(newest[b"b"]) >= size
