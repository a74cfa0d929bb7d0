"""Bad records, and user code that raises: the configured handler decides, and nothing else is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from tests.runtime.running import GUARANTEES, failure_of, run_until
from tests.support import kafka

_OFFSET = "__streams.errors.offset"
CONTINUE = {
    "deserialization.exception.handler": "continue",
    "processing.exception.handler": "continue",
    "production.exception.handler": "continue",
}


def copy(source, target, key=mp.String, value=mp.Long):
    """A topology that copies a topic."""
    builder = mp.StreamsBuilder()
    builder.stream(source, key=key, value=value).to(target)
    return builder.build()


def long(number):
    """A value as the Long serde writes it."""
    return number.to_bytes(8, "big", signed=True)


BAD = {
    "an undecodable value": (b"b", b"not eight bytes", "LongDeserializer|8 bytes|Long"),
    "an undecodable key": (b"\xff\xfe", long(2), "utf-8|String"),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("bad", BAD, ids=[each.replace(" ", "-") for each in BAD])
def test_undecodable_record_stops_the_worker_at_its_offset(broker, create_topic, app_id, tmp_path, bad, guarantee):
    """The error names the place and the setting. The offset is not committed, and a restart reads the record again."""
    source, target = create_topic("in"), create_topic("out")
    key, value, _ = BAD[bad]
    kafka.produce(broker.bootstrap_servers, source, [(b"a", long(1)), (key, value), (b"c", long(3))])
    settings = {"processing.guarantee": guarantee}
    topology = copy(source, target)
    for _ in range(2):
        error = failure_of(topology, broker.bootstrap_servers, app_id, tmp_path, settings)
        assert f"{source}-0 offset 1" in str(error)
        assert "deserialization.exception.handler" in str(error)
    assert kafka.committed_offsets(broker.bootstrap_servers, app_id, source)[0][0] <= 1
    rows = run_until(
        topology, broker.bootstrap_servers, app_id, tmp_path, target,
        lambda rows: {b"a", b"c"} <= {row.key for row in rows}, {**settings, **CONTINUE},
    )  # fmt: skip
    if guarantee == "exactly_once":
        assert [row.key for row in rows] == [b"a", b"c"]


def test_only_bad_records_still_move_the_committed_offset(broker, create_topic, app_id, tmp_path):
    """With CONTINUE, a topic of bad records is committed to its end, and each is in the dead-letter topic."""
    source, target, letters = create_topic("in"), create_topic("out"), create_topic("dead")
    kafka.produce(broker.bootstrap_servers, source, [(b"k%d" % each, b"bad", 1_000 + each) for each in range(20)])
    settings = {**CONTINUE, "errors.dead.letter.queue.topic.name": letters}
    rows = run_until(copy(source, target), broker.bootstrap_servers, app_id, tmp_path, letters, 20, settings)
    assert [(row.key, row.value) for row in rows] == [(b"k%d" % each, b"bad") for each in range(20)]
    assert kafka.committed_offsets(broker.bootstrap_servers, app_id, source)[0][0] == 20
    headers = dict(rows[7].headers)
    assert headers["__streams.errors.topic"] == source.encode()
    assert headers["__streams.errors.partition"] == b"0"
    assert headers["__streams.errors.offset"] == b"7"
    assert set(headers) == {
        f"__streams.errors.{each}" for each in ("exception", "stacktrace", "message", "topic", "partition", "offset")
    }


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_dead_letters_hold_the_source_record_of_every_failure(broker, create_topic, app_id, tmp_path, guarantee):
    """Deserialization, processing and production failures each send the raw source record with its own headers."""
    source, target, letters = create_topic("in"), create_topic("out"), create_topic("dead")
    records = [(b"fine", b"1"), (b"undecodable", b"{"), (b"raises", b"2"), (b"unencodable", b"3"), (b"last", b"4")]
    kafka.produce(broker.bootstrap_servers, source, [(*record, 5_000) for record in records])

    def work(key, value):
        if key == "raises":
            raise RuntimeError("cannot work on this")
        return object() if key == "unencodable" else value

    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.Json(int)).map_values(work, with_key=True).to(
        target, value=mp.Json()
    )
    settings = {
        **CONTINUE, "processing.guarantee": guarantee, "errors.dead.letter.queue.topic.name": letters,
    }  # fmt: skip
    rows = run_until(
        builder.build(), broker.bootstrap_servers, app_id, tmp_path, target,
        lambda rows: any(row.key == b"last" for row in rows), settings,
    )  # fmt: skip
    assert [row.key for row in rows] == [b"fine", b"last"]
    dead = sorted(kafka.read(broker.bootstrap_servers, letters), key=lambda row: dict(row.headers)[_OFFSET])
    assert [(row.key, row.value, row.timestamp) for row in dead] == [(*record, 5_000) for record in records[1:4]]
    for offset, row in enumerate(dead, 1):
        headers = dict(row.headers)
        assert headers["__streams.errors.topic"] == source.encode()
        assert headers["__streams.errors.offset"] == str(offset).encode()
    assert b"cannot work on this" in dict(dead[1].headers)["__streams.errors.message"]
    assert dict(dead[1].headers)["__streams.errors.exception"] == b"RuntimeError"


def _raiser(kind):
    """A topology in which user code of one kind raises at the record 'boom'."""

    def boom(key):
        if key == "boom":
            raise ZeroDivisionError("user code")

    class Relay(mp.Processor):
        def process(self, record):
            boom(record.key)
            self.context.forward(record)

    def predicate(key, _value):
        boom(key)
        return True

    def build(source, target):
        builder = mp.StreamsBuilder()
        stream = builder.stream(source, key=mp.String, value=mp.Long)
        if kind == "filter":
            stream.filter(predicate).to(target)
        elif kind == "map":
            stream.map(lambda key, value: (boom(key), (key, value))[1]).to(target, key=mp.String, value=mp.Long)
        elif kind == "processor":
            stream.process(Relay).to(target, key=mp.String, value=mp.Long)
        elif kind == "partitioner":
            stream.to(target, partitioner=lambda _topic, key, _value, _count: boom(key) or {0})
        elif kind == "topic extractor":
            stream.to(lambda key, _value, _context: boom(key) or target)
        elif kind == "serializer":
            stream.map_values(lambda key, value: "text" if key == "boom" else value, with_key=True, value=mp.Long).to(
                target
            )
        elif kind == "aggregator":
            (
                stream.group_by_key()
                .aggregate(int, lambda key, value, total: boom(key) or total + value, store="sums", value=mp.Long)
                .to_stream()
                .to(target)
            )
        return builder.build()

    return build


KINDS = ("filter", "map", "processor", "partitioner", "topic extractor", "serializer", "aggregator")


@pytest.mark.parametrize("kind", KINDS)
def test_raising_user_code_drops_only_its_record_under_continue(kind):
    """FAIL stops with the node, the place and the setting; CONTINUE drops the one record and counts it."""
    topology = _raiser(kind)("in", "out")

    def run(settings):
        with mp.testing.TopologyTestDriver(topology, settings) as driver:
            source = driver.create_input_topic("in", key=mp.String, value=mp.Long)
            target = driver.create_output_topic("out", key=mp.String, value=mp.Long)
            for key in ("a", "boom", "c"):
                source.pipe_input(key, 1)
            return [key for key, _ in target.read_key_values_to_list()]

    assert run({**CONTINUE, "statestore.cache.max.bytes": 0}) == ["a", "c"]
    with pytest.raises(mp.MillpondError) as caught:
        run({})
    text = str(caught.value)
    assert "in-0 offset 1" in text
    assert "exception.handler" in text


@pytest.mark.parametrize("kind", list(mp.PunctuationType), ids=lambda each: each.name.lower())
def test_a_punctuator_that_raises_calls_the_processing_handler(kind):
    """With CONTINUE it fires again; FAIL stops the worker with the node's name."""

    class Ticker(mp.Processor):
        def init(self, context):
            super().init(context)
            context.schedule(timedelta(seconds=1), kind, self.tick)

        def tick(self, now_ms):
            if now_ms < 3_000:
                raise ZeroDivisionError("in the punctuator")
            self.context.forward(mp.Record("tick", now_ms, now_ms))

        def process(self, record):
            pass

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.Long).process(Ticker, name="ticker").to(
        "out", key=mp.String, value=mp.Long
    )
    topology = builder.build()

    def run(settings):
        with mp.testing.TopologyTestDriver(topology, settings, initial_wall_clock=0) as driver:
            source = driver.create_input_topic("in", key=mp.String, value=mp.Long)
            target = driver.create_output_topic("out", key=mp.String, value=mp.Long)
            for second in range(1, 6):
                source.pipe_input("a", 1, second * 1_000)
                driver.advance_wall_clock_time(timedelta(seconds=1))
            return [value for _, value in target.read_key_values_to_list()]

    assert run(CONTINUE) == [3_000, 4_000, 5_000]
    with pytest.raises(mp.MillpondError, match=r"ticker.*processing\.exception\.handler"):
        run({})


def test_raising_timestamp_extractor_stops_the_worker_at_its_record(broker, create_topic, app_id, tmp_path):
    """As in Kafka Streams, no handler is called: the error names source, topic, partition and offset."""
    source, target = create_topic("in"), create_topic("out")
    kafka.produce(broker.bootstrap_servers, source, [(b"a", long(1)), (b"b", long(0)), (b"c", long(3))])
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.Long, timestamp=lambda value: 1_000 // value).to(target)
    error = failure_of(builder.build(), broker.bootstrap_servers, app_id, tmp_path, CONTINUE)
    assert f"{source}-0 offset 1" in str(error)
    assert "ZeroDivisionError" in str(error)
    assert kafka.committed_offsets(broker.bootstrap_servers, app_id, source)[0][0] <= 1


def test_a_negative_timestamp_is_dropped_counted_and_committed(broker, create_topic, app_id, tmp_path):
    """If an extractor returns a negative timestamp, only this record is dropped."""
    source, target = create_topic("in"), create_topic("out")
    numbers = [5, -1, 7, -3, 9, -2]
    kafka.produce(broker.bootstrap_servers, source, [(b"k", long(each)) for each in numbers])
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.Long, timestamp=lambda value: value).to(target)
    rows = run_until(builder.build(), broker.bootstrap_servers, app_id, tmp_path, target, 3)
    assert [row.timestamp for row in rows] == [5, 7, 9]
    assert kafka.committed_offsets(broker.bootstrap_servers, app_id, source)[0][0] == len(numbers)


MISSING = -1
EXTRACTORS = {
    None: "stop",
    "LogAndSkipOnInvalidTimestamp": [10, 30],
    "UsePartitionTimeOnInvalidTimestamp": [10, 10, 30],
}


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_timestamp_extractor_sees_records_without_a_timestamp(extractor):
    """The default stops with the cure in its message; the others skip the record, or use the partition time."""
    settings = {} if extractor is None else {"default.timestamp.extractor": extractor}
    with mp.testing.TopologyTestDriver(copy("in", "out"), settings) as driver:
        source = driver.create_input_topic("in", key=mp.String, value=mp.Long)
        target = driver.create_output_topic("out", key=mp.String, value=mp.Long)

        def pipe():
            for timestamp in (10, MISSING, 30):
                source.pipe_input("a", 1, timestamp)

        if extractor is None:
            with pytest.raises(mp.MillpondError, match="LogAndSkipOnInvalidTimestamp"):
                pipe()
        else:
            pipe()
            assert [record.timestamp for record in target.read_records_to_list()] == EXTRACTORS[extractor]


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.one_of(st.none(), st.integers(0, 9))), max_size=30))
def test_null_keys_and_values_are_dropped_where_the_rules_say(records):
    """Stateless operators forward nulls; a count drops records with a null key or value, for any input."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.Long)
    stream.to("copied")
    stream.group_by_key().count(store="counts").to_stream().to("counted", key=mp.String, value=mp.Long)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key=mp.String, value=mp.Long)
        copied = driver.create_output_topic("copied", key=mp.String, value=mp.Long)
        counted = driver.create_output_topic("counted", key=mp.String, value=mp.Long)
        for key, value in records:
            source.pipe_input(key, value)
        assert copied.read_key_values_to_list() == records
        expected = {}
        for key, value in records:
            if key is not None and value is not None:
                expected[key] = expected.get(key, 0) + 1
        assert dict(counted.read_key_values_to_list()) == expected
