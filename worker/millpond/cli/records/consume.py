"""`millpond consume`: show the records of a topic as JSON lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click
from confluent_kafka import Message

from millpond.cli.cluster.printable import printable
from millpond.cli.options import verbose_option
from millpond.cli.session import Session
from millpond.durations import Duration, milliseconds
from millpond.serdes.fail_fast import failing_fast
from millpond.times import parse_epoch_ms

from .application_coders import Coders
from .broker import Place, broker_options
from .choices import format_options
from .coders import base64_of, json_bytes
from .decoding import Decoded, decode
from .reading import Wanted, admin_of, counted, newest, quiet, records
from .registry_hints import looks_like_registry
from .window_hints import TIME, kind_of_windows

__all__ = ("command",)

_EXAMPLES = 3
_AUTO = "auto"


@click.command("consume", short_help="Show the records of a topic as JSON lines.")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Begin with the topic's first record (default).")
@click.option(
    "--from", "first", metavar="TIME", help="Begin with a time, such as 2026-01-31T12:00:00Z, 10m (ago) or now."
)
@click.option("--until", "last", metavar="TIME", help="Leave out the records of this time and later ones.")
@click.option("-n", "--max", "most", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option("--last", "newest_count", type=click.IntRange(1), metavar="N",
              help="Only the newest N records, over all partitions.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Wait for further records, until Ctrl-C.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, metavar="N",
              help="Only this partition; may be repeated.")  # fmt: skip
@click.option("-k", "--key-is", "wanted_key", metavar="KEY", help="Only the records of this key, as text or JSON.")
@click.option("--isolation", type=click.Choice(["read_committed", "read_uncommitted"]), default="read_committed",
              show_default=True, help="Whether records of open and aborted transactions are left out.")  # fmt: skip
@click.option("--stack-traces", is_flag=True, help="Show the stack traces in the headers of dead letters.")
@format_options
@broker_options
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    session: Session,
    topic: str,
    first: str | None,
    last: str | None,
    most: int | None,
    newest_count: int | None,
    partitions: tuple[int, ...],
    wanted_key: str | None,
    isolation: str,
    find: Callable[[], Place],
    coders: Callable[..., Coders],
    *,
    from_beginning: bool,
    follow: bool,
    stack_traces: bool,
) -> None:
    """Show the records of TOPIC as JSON lines, from its beginning to its present end.

    A line has key, value, timestamp (epoch ms), partition and offset, and, if the record has any, headers and the
    window of the key. Records of one partition are in their order. Only committed records are shown.

    \b
    millpond consume orders
    millpond consume orders --from 10m --follow
    millpond consume orders --last 10
    millpond consume counts --value long
    millpond consume delays-counts-changelog --application app:delays
    """  # noqa: D301 - click's mark for lines that are not wrapped
    if from_beginning and first is not None:
        raise click.UsageError("--from-beginning and --from exclude each other: leave out one of them.")
    if follow and last is not None:
        raise click.UsageError("--until ends the output, --follow continues it: leave out one of them.")
    if newest_count is not None and (from_beginning or first is not None or most is not None):
        raise click.UsageError(
            "--last shows the newest records, and --from, --from-beginning and --max begin with older ones: leave out "
            "one of them."
        )
    wanted = Wanted(topic, partitions or None, follow=follow, committed=isolation == "read_committed")
    if first == "now":
        wanted.from_end = True
    elif first is not None:
        wanted.from_ms = _time_ms("--from", first)
    until_ms = None if last is None else _time_ms("--until", last)
    quiet(session)
    place = find()
    _say(session, f"broker {place.where}")
    shown = _Shown(
        coders(place, topic, reading=True), most, wanted, until_ms, wanted_key, partial(_say, session),
        stack_traces=stack_traces,
    )  # fmt: skip
    admin = admin_of(place.config)
    with contextlib.suppress(*([KeyboardInterrupt] if follow else [])):
        if newest_count is not None:
            shown.lines(newest(place.config, admin, wanted, newest_count, shown.accepts))
        if newest_count is None or follow:
            told = ""
            for batch in records(place.config, admin, wanted):
                if not shown.lines(batch):
                    break
                told = _tell(session, told, wanted.unreachable)
    _report(session, wanted, shown)


def _tell(session: Session, told: str, now: str) -> str:
    """Say that the brokers do not answer, or answer again, if that has changed; return what is said."""
    if now != told:
        _say(session, now or "the brokers answer again")
    return now


def _say(session: Session, text: str) -> None:
    session.err.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


class _Shown:
    """Writes the lines, and counts them."""

    def __init__(  # noqa: PLR0913 - the options of the command
        self,
        coders: Coders,
        most: int | None,
        wanted: Wanted,
        until_ms: int | None,
        key: str | None,
        note: Callable[[str], None],
        *,
        stack_traces: bool,
    ) -> None:
        self.count = 0
        self.undecoded = 0
        self.without_registry = 0
        """Number of these that need a schema registry which did not answer."""
        self.without_traces = 0
        """Number of dead letters of which the stack trace was left out."""
        self.of_application: bool = coders.choose is not None
        self.windows = ""
        """The value of `--window` that the keys seem to need."""
        self.of_registry: dict[str, None] = {}
        """The parts, `key` and `value`, of which some are base64 and look like those of a schema registry."""
        self.problems: list[str] = []
        """Of the first records that could not be decoded."""
        self._note = note
        self._told_no_registry = False
        self._coders = coders
        self._stack_traces = stack_traces
        self._left = most
        self._wanted = wanted
        self._until_ms = until_ms
        self._key = key
        self._on_terminal = sys.stdout.isatty()

    def accepts(self, message: Message) -> bool:
        """Return whether a record is of the wanted times and key."""
        return self._in_time(message) and (self._key is None or _is_key(self._decoded(message).line["key"], self._key))

    def lines(self, batch: list[Message]) -> bool:
        """Write the wanted records of a batch; return whether more records are wanted."""
        text = []
        for message in batch:
            if not self._in_time(message):
                continue
            line, problem, without_trace, no_registry = self._decoded(message)
            if self._key is not None and not _is_key(line["key"], self._key):
                continue
            self.undecoded += bool(problem)
            self.without_registry += bool(no_registry)
            if not self.windows and not problem and self._coders.key.name == _AUTO:
                self.windows = _windows_of(line["key"], message)
            if not problem:
                self._note_registry(line, message)
            self.without_traces += without_trace
            if problem and len(self.problems) < _EXAMPLES:
                self.problems.append(f"partition {line['partition']}, offset {line['offset']}: {problem}")
            shown = json_bytes(line).decode()
            text.append(printable(shown) if self._on_terminal else shown)
            self.count += 1
            if self.count == self._left:
                break
        if text:
            sys.stdout.write("\n".join(text) + "\n")
            sys.stdout.flush()
        return self.count != self._left

    def _note_registry(self, line: dict[str, Any], message: Message) -> None:
        for part, coder, raw in (
            ("key", self._coders.key, message.key()),
            ("value", self._coders.value, message.value()),
        ):
            if part in self.of_registry or coder.name != _AUTO or not isinstance(raw, bytes):
                continue
            if line[part] == base64_of(raw) and looks_like_registry(raw, message.topic() or ""):
                self.of_registry[part] = None

    def _decoded(self, message: Message) -> Decoded:
        """Decode a record. Once the schema registry has not answered, no record waits for it again."""
        call = partial(decode, message, self._coders, stack_traces=self._stack_traces, needs_key=self._key is not None)
        found = failing_fast(call) if self._told_no_registry else call()
        if found.no_registry and not self._told_no_registry:
            self._told_no_registry = True
            self._note(f"{found.no_registry} Keys and values that need it are shown as base64 until it answers.")
        return found

    def _in_time(self, message: Message) -> bool:
        timestamp = message.timestamp()[1]
        return (self._wanted.from_ms is None or timestamp >= self._wanted.from_ms) and (
            self._until_ms is None or timestamp < self._until_ms
        )


def _windows_of(key: Any, message: Message) -> str:
    """Return the value of `--window` that a key seems to need, which is shown as base64; empty if it needs none."""
    raw = message.key()
    if not isinstance(raw, bytes) or not isinstance(key, dict) or key != base64_of(raw):
        return ""
    return kind_of_windows(raw, message.topic() or "")


def _is_key(key: Any, wanted: str) -> bool:
    return key == wanted or json_bytes(key).decode() == wanted


def _report(session: Session, wanted: Wanted, shown: _Shown) -> None:
    """Say on standard error what the lines do not: how many they are, what they lack, what could not be decoded."""
    lines = [f"{counted(shown.count)} of {wanted.topic}"]
    if wanted.open_transactions:
        where = ", ".join(f"{each} ({count:,})" for each, count in sorted(wanted.open_transactions.items()))
        lines.append(
            f"an open transaction holds back records at the end of the partitions {where}; "
            "--isolation read_uncommitted shows them"
        )
    if shown.windows:
        size = " with the size of the windows, such as 1h," if shown.windows == TIME else ""
        lines.append(
            f"the keys look like keys in {'windows' if shown.windows == TIME else 'sessions'}: --window {shown.windows}"
            f"{size} shows them, or --application MODULE:ATTRIBUTE"
        )
    if shown.of_registry:
        parts, options = (
            " and ".join(f"{each}s" for each in shown.of_registry),
            " ".join(f"--{each} avro" for each in shown.of_registry),
        )
        lines.append(
            f"the {parts} look like those of a schema registry: {options} shows them (or protobuf, or jsonschema), "
            "with --registry URL or SCHEMA_REGISTRY_URL; or --application MODULE:ATTRIBUTE"
        )
    if shown.undecoded:
        lines.append(f"{counted(shown.undecoded)} could not be decoded, and shown as JSON, text or base64:")
        lines += [f"  {printable(each)}" for each in shown.problems]
        if shown.without_registry:
            lines.append(
                f"{counted(shown.without_registry)} of these need a schema registry that did not answer: consume them "
                "again when it does"
            )
        elif shown.of_application:
            lines.append('to send one again: correct it, remove "error", and give the line to `millpond produce`')
        else:
            lines.append("choose other formats by --key and --value, or give --application")
    if shown.without_traces:
        lines.append("stack traces of dead letters are left out; --stack-traces shows them")
    for line in lines:
        _say(session, line)


def _time_ms(option: str, text: str) -> int:
    """Return a time in epoch ms: as a number, as a duration ago, or as an ISO time, UTC if it has no time zone."""
    if text.isascii() and text.isdecimal():
        return int(text)
    with contextlib.suppress(ValueError):
        return int(time.time() * 1000) - milliseconds(Duration.parse(text))
    try:
        return parse_epoch_ms(text)
    except ValueError:
        raise click.UsageError(
            f"{option}: '{text}' is no time; write 2026-01-31T12:00:00Z, epoch ms, or a duration ago such as 10m."
        ) from None
