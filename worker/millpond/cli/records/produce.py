"""`millpond produce`: write records to a topic, one for each line."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from rich.status import Status

from millpond.cli.options import verbose_option
from millpond.cli.session import Session
from millpond.errors import BrokerError, MillpondError, TopicError
from millpond.runtime import error_codes
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS
from millpond.runtime.missing_rights import Access, Operation
from millpond.topology import is_repartition_topic

from .application_coders import Coders
from .broker import Place, broker_options
from .choices import format_options
from .lines import BadLine, Line, Target, parser, without_mark
from .reading import admin_of, counted, log, partitions_of, quiet

__all__ = ("command",)

_DELIVERY_MS = 60_000
_PROGRESS_S = 0.2
_EXAMPLES = 3
_INVALID_DIFFERENT_RECORD = KafkaError._INVALID_DIFFERENT_RECORD  # noqa: SLF001 - a public error code
_REFUSED = frozenset({KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, _INVALID_DIFFERENT_RECORD})
_WITH_ANOTHER = "the broker refused another record of its batch"
_IN_MICROSECONDS = 100_000_000_000_000
"""Timestamps from here on, which are ms of the year 5138, are microseconds or nanoseconds by mistake."""


@click.command("produce", short_help="Write JSON lines to a topic, as records.")
@click.argument("topic")
@click.argument("records_file", metavar="[FILE]", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option("--key-separator", metavar="TEXT", help="Lines are KEY, this text, and VALUE, instead of JSON objects.")
@click.option(
    "--by-key/--keep-partitions", "by_key", default=None,
    help="Choose partitions by key, also for lines that name one; or take them from the lines, also from those of "
    "another topic.",
)  # fmt: skip
@click.option("--from-line", type=click.IntRange(1), default=1, metavar="N", help="Begin with line N.")
@click.option(
    "--create", "partitions", type=click.IntRange(1), metavar="PARTITIONS", help="Create the topic if it is missing."
)
@click.option("--internal", is_flag=True, help="Allow a changelog or a repartition topic.")
@format_options
@broker_options
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    session: Session,
    topic: str,
    records_file: Path,
    key_separator: str | None,
    from_line: int,
    partitions: int | None,
    find: Callable[[], Place],
    coders: Callable[[Place, str], Coders],
    *,
    by_key: bool | None,
    internal: bool,
) -> None:
    """Write the lines of FILE, or of standard input, to TOPIC.

    A line is a JSON object with value, and, if wanted, key, timestamp (epoch ms, or as 2026-01-31T12:00:00Z), headers,
    partition, and window for keys in windows: what `millpond consume` shows. The partition is that of the key as in
    Kafka's own clients, unless the line names one and was not read from another topic. A line that is no record ends
    the command; it says which records are written.

    \b
    millpond produce orders orders.jsonl
    echo '{"key": "a", "value": {"price": 3}}' | millpond produce orders
    echo 'a:3' | millpond produce prices --key-separator : --value long
    millpond produce orders orders.jsonl --application app:delays
    """  # noqa: D301 - click's mark for lines that are not wrapped
    if key_separator == "":
        raise click.UsageError("--key-separator is empty: give the text between key and value.")
    if not internal and (topic.endswith("-changelog") or is_repartition_topic(topic) or topic.startswith("__")):
        raise TopicError(
            f"topic '{topic}' looks like an internal one, to which only its application writes: choose another topic, "
            "or give --internal."
        )
    quiet(session)
    with _opened(records_file) as source:
        place = find()
        count = _count(place.config, topic, partitions)
        chosen = coders(place, topic)
        if chosen.changelog:
            raise TopicError(
                f"topic '{topic}' is a changelog, whose format only the application writes: choose another topic."
            )
        target = Target(topic, count, keep_partitions=None if by_key is None else not by_key)
        parse = parser(chosen.key, chosen.value, target, separator=key_separator)
        session.err.print(f"broker {place.where}", style="dim", markup=False, highlight=False, soft_wrap=True)
        if source.isatty():
            session.err.print("one record a line; Ctrl-D ends", style="dim", highlight=False)
        tell = functools.partial(session.err.print, style="yellow", markup=False, highlight=False, soft_wrap=True)
        writer = _Writer(place.config, topic, tell)
        try:
            with session.err.status(f"writing to {topic}") as status:
                interrupted = _write(writer, source, parse, from_line, status)
                status.update(f"waiting until the broker has confirmed what was written to {topic}")
                writer.finish()
        except BadLine as error:
            writer.finish()
            ends = "" if str(error).endswith("?") else "."
            raise MillpondError(
                f"line {writer.line}: {error}{ends} {writer.so_far('after the correction, go on')}"
            ) from error
        finally:
            for note in target.notes():
                session.err.print(note, markup=False, highlight=False, soft_wrap=True)
        if interrupted:
            writer.line += 1
            raise MillpondError(f"interrupted before line {writer.line}. {writer.so_far('go on')}")
        if writer.failures:
            raise BrokerError(writer.failed())
        session.err.print(f"{counted(writer.written)} written to {topic}", markup=False, soft_wrap=True)


def _opened(file: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """Return a file, or standard input for `-`, which stays open."""
    if str(file) == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return contextlib.closing(file.open("rb"))
    except OSError as error:
        raise click.UsageError(f"'{file}' cannot be read ({error.strerror}): correct the path.") from error


def _count(config: Config, topic: str, create: int | None) -> int:
    """Return the partition count of the topic, which is created if it is missing and may be."""
    admin = admin_of(config)
    existing = admin.topics()
    if create is not None and topic not in existing:
        admin.create(topic, create, config.replication_factor)
        return create
    return partitions_of(admin, existing, topic, Operation.WRITE, " --create PARTITIONS creates it.")


def _write(
    writer: _Writer, source: BinaryIO, parse: Callable[[bytes], Line | None], from_line: int, status: Status
) -> bool:
    """Write the lines until their end, a failure or Ctrl-C; return whether Ctrl-C ended it."""
    shown_at = time.monotonic()
    with _interruptible(source) as lines:
        for text in lines:
            writer.line += 1
            line = without_mark(text) if writer.line == 1 else text
            if writer.line >= from_line and (found := parse(line)) is not None:
                writer.write(found)
            if writer.failures:
                writer.stopped = True
                return False
            if (now := time.monotonic()) - shown_at >= _PROGRESS_S:
                shown_at = now
                status.update(f"writing to {writer.topic}: {writer.written:,} records, line {writer.line:,}")
    return lines.interrupted


class _Lines:
    """The lines of a file. SIGINT or SIGTERM ends them between two lines, so that none is processed in part."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._waiting = False
        self.interrupted = False

    def interrupt(self, _number: int, _frame: object) -> None:
        self.interrupted = True
        if self._waiting:
            raise KeyboardInterrupt

    def __iter__(self) -> Iterator[bytes]:
        while not self.interrupted:
            try:
                self._waiting = True
                text = self._source.readline()
                self._waiting = False
            except KeyboardInterrupt:
                return
            if not text:
                return
            yield text


@contextlib.contextmanager
def _interruptible(source: BinaryIO) -> Iterator[_Lines]:
    lines = _Lines(source)
    before = {each: signal.signal(each, lines.interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lines
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Writer:
    """A producer that knows which lines are written.

    Args:
        config: the settings of the client.
        topic: the topic.
        tell: called with a sentence for the user, while there is something to wait for.

    Attributes:
        topic: the topic.
        line: the number of the present line.
        written: the number of records that the broker has confirmed.
        failures: the errors of records that it has not, by line.
        stopped: whether lines after `line` were left out because of failures.
    """

    def __init__(self, config: Config, topic: str, tell: Callable[[str], object]) -> None:
        self.topic = topic
        self._tell = tell
        self._told = False
        self.line = 0
        self.written = 0
        self.failures: dict[int, str] = {}
        self.stopped = False
        self._refused = 0
        self._timestamps: dict[int, int] = {}
        fixed: dict[str, Any] = {
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "error_cb": self._on_error,
        }
        defaults: dict[str, Any] = {**CLIENT_DEFAULTS, "linger.ms": 5, "message.timeout.ms": _DELIVERY_MS}
        settings = config.producer_settings(defaults=defaults, fixed=fixed)
        self._access = Access.of(settings)
        self._producer = Producer(dict(settings), logger=log)

    def _on_error(self, error: KafkaError) -> None:
        log.debug("%s", error)
        if error.code() == error_codes.ALL_BROKERS_DOWN and not self._told:
            self._told = True
            self._tell(
                f"no broker answers: records wait for up to {_DELIVERY_MS // 1000} s until it is back. Ctrl-C ends the "
                "wait."
            )

    def write(self, record: Line) -> None:
        """Send a record. Waits while too many are on their way.

        Raises:
            BadLine: the client rejects the record, such as one that is too large.
        """
        number = self.line

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.written += 1
                self._told = False
            else:
                code = error.code()
                self.failures[number] = (
                    _WITH_ANOTHER
                    if code == _INVALID_DIFFERENT_RECORD
                    else self._access.clause(error, [self.topic], Operation.WRITE)
                )
                self._refused += code in _REFUSED
                if code == KafkaError.INVALID_TIMESTAMP or (
                    # The code of a batch of several records, which says nothing of the cause.
                    code == KafkaError.INVALID_RECORD and record.timestamp_ms > time.time() * 1000
                ):
                    self._timestamps[number] = record.timestamp_ms

        while True:
            try:
                self._producer.produce(
                    self.topic, record.value, record.key, record.partition,
                    on_delivery=delivered, timestamp=record.timestamp_ms, headers=list(record.headers),
                )  # fmt: skip
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(_PROGRESS_S)
            except KafkaException as error:
                raise BadLine(f"the record cannot be sent ({error.args[0].str()})") from error

    def finish(self) -> None:
        """Wait until each record is confirmed or has failed.

        Raises:
            MillpondError: Ctrl-C ended the wait.
        """
        try:
            while self._producer.flush(_PROGRESS_S):  # Ctrl-C is seen between two calls
                pass
        except KeyboardInterrupt:
            raise MillpondError(
                f"interrupted: {counted(self.written)} went to {self.topic}, and {counted(len(self._producer))} up to "
                f"line {self.line} were not confirmed, and may have been written or not: look with `millpond consume` "
                "before you write them again."
            ) from None

    def so_far(self, then: str) -> str:
        """Return what is written, and how to go on, as sentences; `then` begins the advice."""
        if self.failures:
            return self.failed()
        if not self.written:
            return "Nothing is written."
        return f"Before it, {counted(self.written)} went to {self.topic}: {then} with --from-line {self.line}."

    def failed(self) -> str:
        """Return which lines are not written, as a message."""
        numbers = sorted(self.failures)
        reasons = self._reasons()
        # The lines that others failed with come last.
        causes = sorted(numbers, key=lambda each: reasons[each] == _WITH_ANOTHER)
        shown = "; ".join(f"line {each}: {reasons[each]}" for each in causes[:_EXAMPLES])
        all_lines = f"; these are the lines {_ranges(numbers)}" if len(numbers) > _EXAMPLES else ""
        unread = (
            f" Lines after {self.line} were not read: go on with --from-line {self.line + 1}." if self.stopped else ""
        )
        others = f"{self.written:,} others are" if self.written > 1 else "1 other is" if self.written else "no other is"
        maybe = "" if self._refused == len(numbers) else "; after a timeout they may have been written already"
        return (
            f"the broker did not confirm {counted(len(numbers))} ({shown}{all_lines}); {others} written. "
            f"Correct the cause, and write the unconfirmed lines again{maybe}.{unread}"
        )

    def _reasons(self) -> dict[int, str]:
        """Return why the broker has not confirmed each record, by line.

        It refuses a batch with a wrong timestamp as a whole. It takes old ones unless the topic says otherwise.
        """
        now_ms = time.time() * 1000
        late = any(each > now_ms for each in self._timestamps.values())
        return self.failures | {
            line: _of_timestamp(given, now_ms) if given and (given > now_ms or not late) else _WITH_ANOTHER
            for line, given in self._timestamps.items()
        }


def _of_timestamp(given_ms: int, now_ms: float) -> str:
    """Return why the broker has refused a timestamp."""
    if given_ms < now_ms:
        return f"its timestamp {given_ms} is older than the topic allows (message.timestamp.before.max.ms)"
    hint = "; timestamps are in ms, so divide microseconds by 1000" if given_ms >= _IN_MICROSECONDS else ""
    return f"its timestamp {given_ms} is too far in the future for the topic (message.timestamp.after.max.ms){hint}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return rising numbers as text, such as `1, 3-5`."""
    found: list[list[int]] = []
    for each in numbers:
        if found and found[-1][1] == each - 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in found)
