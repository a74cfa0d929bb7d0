"""Wrong uses of the DSL: type checkers reject every line marked `# wrong`, and no other."""

from __future__ import annotations

from datetime import timedelta

import millpond as mp

builder = mp.StreamsBuilder()
words = builder.stream("words", key=mp.String, value=mp.String)
numbers = builder.table("numbers", key=mp.Int, value=mp.Double)
lengths = builder.table("lengths", key=mp.String, value=mp.Int)
names = builder.global_table("names", key=mp.Int, value=mp.String)

NEAR = mp.JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=1))


def shout(word: str) -> str:
    return word.upper()


def plus(word: str, length: int) -> str:
    return word * length


def plus_name(word: str, name: str) -> str:
    return word + name


def first_letter(_key: str, word: str) -> str:
    return word[0]


def length_of(_key: str, word: str) -> int:
    return len(word)


def add(_key: str, word: str, total: int) -> int:
    return total + len(word)


def later(one: str, two: str) -> str:
    return max(one, two)


def word_or_none(word: str) -> str | None:
    return word or None


def is_long(_key: str, number: int) -> bool:
    return number > 10


# Joins: equal key types, joiners that take both values, selectors that give the global table's keys
words.join(numbers, plus)  # wrong
words.join(lengths, plus_name)  # wrong
words.join(names, plus_name, on=first_letter)  # wrong
words.join(names, plus, on=length_of)  # wrong
words.join(names, plus_name)  # wrong
words.join(lengths, plus, on=length_of)  # wrong
words.left_join(lengths, plus)  # wrong
words.join(words, plus_name)  # wrong
words.join(lengths, plus, with_key=True)  # wrong
words.outer_join(lengths, plus, NEAR)  # wrong
words.outer_join(words, plus_name, NEAR)  # wrong
words.left_join(words, plus_name, NEAR)  # wrong

# Functions over values and serdes of other types
numbers.map_values(shout)  # wrong
words.filter(is_long)  # wrong
words.map_values(first_letter)  # wrong
words.map_values(shout, value=mp.Int)  # wrong
words.select_key(length_of, key=mp.String)  # wrong
words.to("out", value=mp.Int)  # wrong
words.map_batches(shout)  # wrong
words.map_values_async(shout)  # wrong
words.map_batches(lambda batch: batch, batch="list")  # wrong
words.to_table(value=mp.Int)  # wrong
words.merge(lengths.to_stream())  # wrong
lengths.to_stream(lambda key: key)  # wrong
builder.stream("in", key=mp.String, value=str)  # wrong

# The serde of a stream that has tombstones is that of its other values
maybe_words = words.map_values(word_or_none)
maybe_words.to("out", value=mp.Int)  # wrong
maybe_words.to("out", key=mp.Int, value=mp.String)  # wrong
maybe_words.to_table(value=mp.Int)  # wrong
maybe_words.repartition(value=mp.Int)  # wrong
maybe_words.group_by_key(value=mp.Int)  # wrong
maybe_words.group_by(first_letter, value=mp.String)  # wrong
maybe_words.join(lengths, plus)  # wrong

# Aggregations
words.group_by_key().reduce(add)  # wrong
words.group_by_key().aggregate(str, add)  # wrong
words.group_by_key().aggregate(int, add, value=mp.String)  # wrong
words.group_by_key().count(value=mp.String)  # wrong
words.group_by_key().count(retention=timedelta(days=1))  # wrong
words.group_by_key().count(stor="counts")  # wrong
words.group_by_key().windowed_by(timedelta(hours=1))  # wrong
words.group_by_key().cogroup(later)  # wrong
words.group_by_key().cogroup(add).cogroup(words, add)  # wrong
words.group_by_key().cogroup(add).aggregate(str)  # wrong
words.group_by_key().cogroup(add).windowed_by(timedelta(hours=1))  # wrong
words.group_by_key().windowed_by(mp.TimeWindows(timedelta(hours=1))).emit_strategy("close")  # wrong
mp.TimeWindows(3600)  # wrong
lengths.group_by(length_of)  # wrong
lengths.suppress(mp.until_window_closes())  # wrong


# Processors of other types
class Count(mp.Processor[int, int, int, int]):
    def process(self, record: mp.Record[int, int]) -> None:
        self.context.forward(record.with_value("one"))  # wrong


class Stored(mp.Processor[str, str, str, str]):
    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        context.get_state_store("counts", mp.KeyValueStore[str, int]).put("a", "b")  # wrong
        context.metrics.counter("orders", level="INF")  # wrong


class Words(mp.Processor[str, str, str, str | None]):
    def process(self, record: mp.Record[str, str]) -> None:
        self.context.forward(record)
        self.context.forward(record.with_value(1))  # wrong


class Changes(mp.FixedKeyProcessor[str, str | None, str]):
    def process(self, record: mp.FixedKeyRecord[str, str | None]) -> None:
        self.context.forward(record)  # wrong


app = mp.App("small")


@app.map_values("words", to="lengths", key=mp.String, value=mp.String, result=mp.Int)  # wrong
def upper(word: str) -> str:
    return word.upper()


words.process(Count)  # wrong
words.process(Words, value=mp.Int)  # wrong
maybe_words.process(Words)  # wrong
lengths.to_stream().process_values(Changes)  # wrong
words.process_values(Changes, value=mp.Int)  # wrong
