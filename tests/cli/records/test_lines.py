"""Lines of `millpond produce` as records, and formats of keys and values."""

from __future__ import annotations

import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import murmur2

from millpond.cli.records.application_coders import coders_of_topic, with_windows
from millpond.cli.records.coders import FORMATS, json_bytes, json_value, named, of_serde
from millpond.cli.records.lines import BadLine, Line, Target, parser, without_mark
from millpond.cli.records.registry_formats import REGISTRY_FORMATS
from millpond.cli.records.topics import TopicRow, application_of, retention
from millpond.durations import Duration
from millpond.errors import ConfigError
from millpond.runtime.config.model import Config
from millpond.serdes import Json, Serde, String, Windowed
from millpond.times import parse_epoch_ms


class View(msgspec.Struct):
    """A type of values."""

    page: str
    count: int = 0


def _parse(
    text: str, key: Any = "auto", value: Any = "auto", *, target: Target | None = None, **options: Any
) -> Line | None:
    """Return the record of a line for a topic with 4 partitions."""
    coders = [
        of_serde(each) if isinstance(each, Serde) else named(each, "topic", is_key=is_key)
        for each, is_key in ((key, True), (value, False))
    ]
    return parser(*coders, target or Target("orders", 4), **options)(text.encode())


def test_a_line_with_all_fields_is_a_record() -> None:
    """The offset at which it was read is ignored."""
    line = _parse(
        '{"key": "a", "value": {"b": 1}, "timestamp": "2026-01-31T12:00:00Z", "headers": {"x": "y", "z": null}, '
        '"partition": 3, "topic": "orders", "offset": 17}'
    )
    assert line == Line(b"a", b'{"b":1}', 1769860800000, (("x", b"y"), ("z", None)), 3)


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ('"text"', b"text"), ('"ü"', "ü".encode()), ("5", b"5"), ("true", b"true"), ("[1]", b"[1]"), ("null", None),
    ],
)  # fmt: skip
def test_without_a_format_strings_are_text_and_other_values_are_json(text: str, raw: bytes | None) -> None:
    line = _parse(f'{{"value": {text}}}')
    assert line is not None
    assert (line.key, line.value, line.timestamp_ms, line.partition) == (None, raw, 0, -1)


@pytest.mark.parametrize(
    ("format", "text", "raw"),
    [
        ("string", '"a"', b"a"),
        ("json", '"a"', b'"a"'),
        ("long", "7", struct.pack(">q", 7)),
        ("int", "-7", struct.pack(">i", -7)),
        ("short", "7", struct.pack(">h", 7)),
        ("double", "7", struct.pack(">d", 7)),
        ("double", '"-Infinity"', struct.pack(">d", float("-inf"))),
        ("float", "0.5", struct.pack(">f", 0.5)),
        ("boolean", "true", b"\x01"),
        ("uuid", f'"{uuid.UUID(int=1)}"', str(uuid.UUID(int=1)).encode()),
        ("bytes", '"AAE="', b"\0\1"),
        ("msgpack", "[1]", b"\x91\x01"),
    ],
)
def test_each_format_writes_its_bytes_and_shows_them_again(format: str, text: str, raw: bytes) -> None:
    coder = named(format, "topic", is_key=False)
    value = msgspec.json.decode(text)
    assert coder.encode(value) == raw
    assert coder.decode(raw) == value


def test_times_are_exact_to_the_millisecond() -> None:
    """Seconds as a float, in milliseconds, are often a little below the whole number."""
    written = [f"{year}-03-01T12:34:56.{ms:03d}Z" for year in (1990, 2005, 2026, 2099) for ms in range(1000)]
    assert [parse_epoch_ms(each) % 1000 for each in written] == list(range(1000)) * 4
    assert parse_epoch_ms("2026-01-31T12:00:00") == parse_epoch_ms("2026-01-31T13:00:00+01:00") == 1769860800000


@pytest.mark.parametrize("raw", [b'{"a": 1}', b'{"b":2,"a":1}', b"[1, 2]", b'{"a":1.10}', b'{"a":1}', b"text", b'"q"'])
def test_a_key_that_is_shown_is_written_with_the_same_bytes(raw: bytes) -> None:
    """Keys that are equal as JSON are different keys, and go to different partitions."""
    coder = named("auto", "topic", is_key=True)
    assert coder.encode(json_value(json_bytes(coder.decode(raw)))) == raw


@pytest.mark.parametrize("format", ["auto", "json"])
def test_numbers_that_a_float_cannot_have_stay_as_they_are(format: str) -> None:
    text = "[12345678901234567.89,0.1,18446744073709551616]"
    line = _parse(f'{{"value": {text}}}', value=format)
    assert line is not None
    assert line.value == text.encode()
    assert json_bytes(named(format, "topic", is_key=False).decode(text.encode())) == text.encode()


def test_decimals_of_an_application_get_all_digits() -> None:
    line = _parse('{"value": [12345678901234567.89]}', value=Json(list[Decimal]))
    assert line == Line(None, b"[12345678901234567.89]")


def test_formats_without_decimals_have_floats() -> None:
    line = _parse('{"value": 0.12345678901234567890}', value="double")
    assert line == Line(None, struct.pack(">d", 0.1234567890123456789))


def test_formats_for_options_are_those_that_have_coders() -> None:
    assert all(named(each, "topic", is_key=True).encode for each in FORMATS if each not in REGISTRY_FORMATS)


@pytest.mark.parametrize(
    ("text", "options", "cause"),
    [
        ('{"value"', {}, "it is not JSON"),
        ("[]", {}, "`jq -c '.[]' FILE`"),
        ("[", {}, "`jq -c '.[]' FILE`"),
        ("{", {}, "`jq -c . FILE`"),
        ("{}", {}, 'no "value"'),
        ('{"value": 1, "kye": 2}', {}, 'Did you mean "key"?'),
        ('{"value": 1, "xyz": 2}', {}, "The fields are key, value"),
        ('{"value": {"base64": "AA=="}, "error": "value: …"}', {}, 'Correct its key or value, and remove "error"'),
        ('{"value": 1, "topic": 5}', {}, '"topic" is no text'),
        ('{"value": 1, "timestamp": 0}', {}, "must be above 0"),
        ('{"value": 1, "timestamp": "1970-01-01T00:00:00Z"}', {}, "must be above 0"),
        ('{"value": 1, "timestamp": "1969-12-31T23:59:59Z"}', {}, "must be above 0"),
        ('{"value": 1, "timestamp": "soon"}', {}, "is no time"),
        ('{"value": 1, "timestamp": 1.5}', {}, "is no time"),
        ('{"value": 1, "headers": {"a": 5}}', {}, '"headers" are wrong'),
        ('{"value": 1, "partition": 4}', {}, "the partitions 0 to 3"),
        ('{"value": 1, "partition": true}', {}, "the partitions 0 to 3"),
        ('{"key": "a", "value": 1, "window": {"start": 0, "end": 1}}', {}, "Give --window"),
        ('{"value": {"base64": "AAE="}}', {}, "choose a format"),
        ('{"value": "a"}', {"value": "long"}, '"value": Long needs an integer, not a string'),
        ('{"value": true}', {"value": "long"}, "not true or false"),
        ('{"value": 1e300}', {"value": "float"}, "Float cannot encode"),
        (f'{{"value": {2**63}}}', {"value": "long"}, "Long cannot encode"),
        ('{"value": 1}', {"value": "boolean"}, "Boolean cannot encode"),
        ('{"value": "a"}', {"value": "uuid"}, "UUID needs a string such as"),
        ('{"value": "a"}', {"value": "bytes"}, "base64"),
        ('{"value": {"page": 1}}', {"value": Json(View)}, "does not accept it: Expected `str`, got `int`"),
        ("a", {"separator": ":"}, "no ':' between key and value"),
        ("a:b", {"separator": ":", "value": "long"}, "'b' is no value of Long"),
    ],
)
def test_a_line_that_is_no_record_says_why(text: str, options: dict[str, Any], cause: str) -> None:
    with pytest.raises(BadLine) as error:
        _parse(text, **options)
    assert cause in str(error.value)


@pytest.mark.parametrize("options", [{}, {"separator": ":"}])
def test_lines_that_are_not_utf_8_are_told(options: dict[str, Any]) -> None:
    """With the byte, with and without a separator."""
    text = named("auto", "topic", is_key=True)
    with pytest.raises(BadLine, match=r"it is not UTF-8 .* at byte 12"):
        parser(text, text, Target("orders", 4), **options)(b'{"value": "\xc3\xa9'[:11] + b'a\xe9"}')


def test_marks_at_the_beginning_of_a_file() -> None:
    """That of UTF-8 is left out; UTF-16 is named."""
    assert without_mark(b'\xef\xbb\xbf{"value": 1}') == b'{"value": 1}'
    for text in ('{"value": 1}'.encode("utf-16-le"), '{"value": 1}'.encode("utf-16-be")):
        assert without_mark(text) == text
    with pytest.raises(BadLine, match="the file is UTF-16"):
        without_mark('{"value": 1}'.encode("utf-16"))


def test_timestamps_in_seconds_are_noted() -> None:
    """They are written as they are: a record of 1970 is possible."""
    target = Target("orders", 4)
    for given in (1769860810, 1769860810000, '"1970-01-21"', 5):
        assert _parse(f'{{"value": 1, "timestamp": {given}}}', target=target)
    (note,) = target.notes()
    assert note.startswith(
        '1 line has a "timestamp" that looks like seconds, but is read as ms: 1769860810 is 1970-01-21.'
    )


def test_lines_with_a_separator_are_text_or_values_of_the_format() -> None:
    assert _parse("a:1:2\n", separator=":") == Line(b"a", b"1:2")
    assert _parse("a:7", separator=":", value="long") == Line(b"a", struct.pack(">q", 7))
    assert _parse('a:{"page": "x"}', separator=":", value=Json(View)) == Line(b"a", b'{"page":"x"}')


def test_empty_lines_are_no_records() -> None:
    assert _parse(" \n") is None


def test_partitions_of_lines_can_be_ignored() -> None:
    target = Target("orders", 4, keep_partitions=False)
    line = _parse('{"value": 1, "partition": 9, "topic": "orders"}', target=target)
    assert line is not None
    assert line.partition == -1
    assert target.notes() == []


@pytest.mark.parametrize(
    ("origin", "partition", "told"),
    [
        ("", 3, False),
        ('"topic": "orders", "offset": 5, ', 3, False),
        ('"topic": "orders-dead", "offset": 5, ', -1, True),
        ('"offset": 5, ', -1, True),
    ],
)
def test_a_record_of_another_topic_goes_to_the_partition_of_its_key(origin: str, partition: int, *, told: bool) -> None:
    """A partition of a dead letter's topic says nothing about the topic that the record is sent to again."""
    target, kept = Target("orders", 4), Target("orders", 4, keep_partitions=True)
    text = f'{{"key": "a", {origin}"partition": 3, "value": 1}}'
    line, same = _parse(text, target=target), _parse(text, target=kept)
    assert line is not None
    assert same is not None
    assert (line.partition, same.partition) == (partition, 3)
    assert kept.notes() == []
    assert bool(target.notes()) == told
    if told:
        assert "1 line was read from" in target.notes()[0]
        assert "--keep-partitions takes it" in target.notes()[0]


def test_lines_that_were_written_for_other_topics_are_told() -> None:
    """All of them go to the topic of the command. What `millpond consume` has read is no such mistake."""
    target = Target("payments", 4)
    for topic in ("customers", "payments", "customers", "devices"):
        _parse(f'{{"key": "a", "value": 1, "topic": "{topic}"}}', target=target)
    _parse('{"value": 1, "topic": "payments-dead", "offset": 3}', target=target)
    _parse('{"value": 1}', target=target)
    (told,) = target.notes()
    assert told.startswith("3 lines name another topic: customers (2), devices (1). All go to payments, since")
    assert "a command of its own" in told


def test_headers_of_a_dead_letter_stay_in_its_topic() -> None:
    """A copy of the dead-letter topic keeps them; a record that is sent again has none of them."""
    headers = '"headers": [["__streams.errors.stacktrace", "secret"], ["trace", "7f"]]'
    target = Target("orders", 4)
    sent = _parse(f'{{"value": 1, "topic": "orders-dead", "offset": 0, {headers}}}', target=target)
    assert sent is not None
    assert sent.headers == (("trace", b"7f"),)
    assert target.notes() == ["1 line was a dead letter: the headers __streams.errors.* are left out."]
    restored = _parse(f'{{"value": 1, "topic": "orders", {headers}}}')
    assert restored is not None
    assert len(restored.headers) == 2


def test_keys_in_windows_have_the_partition_of_their_key_alone() -> None:
    serde = with_windows(String, Duration.parse("1m"), "counts")
    line = _parse('{"key": "a", "window": {"start": 60000, "end": 120000}, "value": 1}', key=serde)
    assert line is not None
    assert line.key == b"a" + struct.pack(">q", 60_000)
    assert line.partition == murmur2(b"a", 4)
    with pytest.raises(BadLine, match="the key is windowed"):
        _parse('{"key": "a", "value": 1}', key=serde)


@pytest.mark.parametrize(
    ("topic", "kind", "application"),
    [
        ("orders", "", ""),
        ("a-counts-changelog", "changelog", "a"),
        ("a-b-counts-changelog", "changelog", "a-b"),
        ("a-by-word-repartition", "repartition", "a"),
        ("other-counts-changelog", "changelog", ""),
    ],
)
def test_internal_topics_belong_to_the_longest_application_that_fits(topic: str, kind: str, application: str) -> None:
    assert application_of(topic, ["a", "a-b", "b"]) == (kind, application)


@pytest.mark.parametrize(
    ("policy", "retention_ms", "shown"),
    [
        ("delete", None, "for ever"),
        ("delete", 604_800_000, "7 d"),
        ("compact", None, "newest of each key"),
        ("compact,delete", 90_000, "newest of each key, 90 s"),
        ("", None, "unknown"),
    ],
)
def test_the_list_says_how_long_records_are_kept(policy: str, retention_ms: int | None, shown: str) -> None:
    assert retention(TopicRow("t", 1, 0, policy, retention_ms)) == shown


_APPLICATION = """
from datetime import timedelta
import millpond as mp

builder = mp.StreamsBuilder()
words = builder.stream("words", key=mp.String, value=mp.String)
grouped = words.group_by(lambda _, word: word, key=mp.String, value=mp.String, name="by-word")
windows = grouped.windowed_by(mp.TimeWindows(timedelta(minutes=1), grace=timedelta(0)))
windows.count(store="per-minute").suppress(mp.until_window_closes(), name="held").to_stream()
grouped.windowed_by(mp.SessionWindows(timedelta(minutes=1), grace=timedelta(0))).count(store="sessions")
grouped.count(store="counts")
topology = builder.build()
"""


def test_topics_of_an_application_have_the_serdes_of_its_topology() -> None:
    """Changelogs are split into what the application put into the store."""
    names: dict[str, Any] = {}
    exec(_APPLICATION, names)
    config = Config.of({"application.id": "app"}, required=())

    def coders(topic: str) -> Any:
        return coders_of_topic(names["topology"], config, topic)

    number = struct.pack(">q", 2)
    assert coders("words").value.decode(b"x") == "x"
    assert coders("app-by-word-repartition").key.decode(b"x") == "x"
    assert coders("app-counts-changelog").value.decode(number) == 2
    assert coders("app-counts-changelog").split(b"x", None) == (b"x", None, None, None)
    window = coders("app-per-minute-changelog").split(b"x" + struct.pack(">qi", 60_000, 0), number)
    assert window == (b"x", number, 60_000, 120_000)
    session = coders("app-sessions-changelog").split(b"x" + struct.pack(">qq", 9_000, 5_000), number)
    assert session == (b"x", number, 5_000, 9_000)
    held = coders("app-held-store-changelog")
    assert held.key.decode(b"x" + struct.pack(">q", 60_000)) == Windowed("x", 60_000, 120_000)
    with pytest.raises(ConfigError, match="neither reads nor writes topic 'word'; did you mean 'words'"):
        coders("word")


def test_avro_is_written_with_a_schema_of_a_file_or_of_the_subject(tmp_path: Path) -> None:
    """A subject without a schema, and a value that the schema does not allow, are told."""
    registry, schema = "mock://produced", tmp_path / "order.avsc"
    schema.write_text('{"type": "record", "name": "Order", "fields": [{"name": "price", "type": "int"}]}')
    key = named("string", "orders", is_key=True)
    target = Target("orders", 1)
    without = parser(key, named("avro", "orders", is_key=False, registry=registry), target)
    with pytest.raises(BadLine, match="subject 'orders-value' has no schema"):
        without(b'{"value": {"price": 3}}')
    coder = named("avro", "orders", is_key=False, registry=registry, schema=schema)
    line = parser(key, coder, target)
    written = line(b'{"value": {"price": 3}}')
    assert written is not None
    assert coder.decode(written.value or b"") == {"price": 3}
    with pytest.raises(BadLine, match='"value": Avro cannot encode'):
        line(b'{"value": {"price": "three"}}')
    with pytest.raises(ConfigError, match="cannot be read"):
        named("avro", "orders", is_key=False, registry=registry, schema=tmp_path / "missing")
