"""Handlers of records that cannot be deserialized, processed or produced (KIP-161, KIP-210, KIP-1033, KIP-1034).

A handler returns FAIL, CONTINUE or, for production only, RETRY. `fail` and `continue` are built in. Both send the
source record to the dead-letter topic, if any, through the task's outbox and so in the same transaction.
"""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from millpond.checks import kind_of
from millpond.errors import MillpondError, ProcessingFailed, SerializationError, TopologyError
from millpond.state import RecordContext
from millpond.state.unreadable_rows import UnreadableRow, cure_of
from millpond.texts import said, utf8
from millpond.topology.headers import check_headers
from millpond.user_code import place_of

from .context import TaskContext, headers_of
from .drop_log import Failure

__all__ = (
    "ErrorContext",
    "Handler",
    "Handlers",
    "Response",
    "Result",
    "UnreadableInternalRecord",
    "continue_on_error",
    "dead_letter",
    "fail_on_error",
)

log: logging.Logger = logging.getLogger(__name__)

_LONGEST_CAUSE = 500


class Result(enum.Enum):
    """The decision of a handler after an error."""

    FAIL = "fail"
    """Stop the worker."""
    CONTINUE = "continue"
    """Drop the record."""
    RETRY = "retry"
    """Send the record again. Where that cannot help, the same as FAIL."""


class DeadLetter(NamedTuple):
    """A record for the dead-letter topic."""

    topic: str
    """The dead-letter topic."""
    key: bytes | None
    """The key."""
    value: bytes | None
    """The value."""
    timestamp: int
    """The timestamp, in epoch milliseconds."""
    headers: list[tuple[str, bytes | None]]
    """The headers."""


class Response(NamedTuple):
    """The answer of a handler."""

    result: Result
    """The decision."""
    dead_letters: Sequence[DeadLetter] = ()
    """Records for dead-letter topics."""


class ErrorContext(NamedTuple):
    """The place of an error."""

    kind: str
    """``Decoding``, ``Processing`` or ``Producing``."""
    node: str
    """Name of the source, processor or sink."""
    task_id: str
    """Task, such as ``0_3``."""
    topic: str | None
    """Topic of the source record; None without one, as in punctuators."""
    partition: int
    """Partition of the source record, or of the task without one."""
    offset: int
    """Offset of the source record; -1 without one."""
    raw_key: bytes | None
    """Key of the source record; None also in punctuators, for records that waited, and for those from a cache."""
    raw_value: bytes | None
    """Value of the source record; None also in punctuators, for records that waited, and for those from a cache."""
    timestamp: int
    """Timestamp of the source record, in epoch milliseconds."""
    headers: list[tuple[str, bytes | None]]
    """Headers of the source record."""
    record: tuple[Any, Any, int] | None
    """Key, value and timestamp of the record that could not be processed or produced; None when decoding failed."""
    dead_letter_topic: str | None
    """The configured dead-letter topic; None without one."""
    source_at_hand: bool = True
    """Whether key and value of the source record are known: not in punctuators, and not for records that waited or that
    come from a cache."""


Handler = Callable[[ErrorContext, Exception], Response | Result]


class UnreadableInternalRecord(SerializationError):
    """A record of one of the application's own topics cannot be decoded: to drop it would lose a part of its results.

    Args:
        topic: the topic.
        error: what the serde said.
    """

    def __init__(self, topic: str, error: Exception) -> None:
        default = f"{cure}, or " if (cure := cure_of(error, of="records")) else ""
        super().__init__(
            f"{str(error).removesuffix('.')}. '{topic}' is the application's own topic, so an earlier version wrote "
            f"the record, as another type: {default}run the earlier version until it has processed that topic, and "
            "change the type then"
        )
        self.__cause__: BaseException | None = error


def fail_on_error(context: ErrorContext, error: Exception) -> Response:
    """Stop the worker at the error. Nothing of the failed transaction is committed."""
    return Response(Result.FAIL, dead_letter(context, error))


def continue_on_error(context: ErrorContext, error: Exception) -> Response:
    """Drop the record, count it, and continue."""
    return Response(Result.CONTINUE, dead_letter(context, error))


def dead_letter(context: ErrorContext, error: Exception) -> list[DeadLetter]:
    """Return the source record as a dead letter (KIP-1034), for custom handlers, too; empty without such a topic.

    Of records that waited, and of results from a cache, the source record is not known any more: the letter has key and
    value of the record that failed, as text or JSON, and the header `__streams.errors.record` says so.
    """
    topic = context.dead_letter_topic
    if topic is None:
        return []
    described: list[tuple[str, bytes | None]] = [
        ("__streams.errors.exception", utf8(type(error).__qualname__)),
        ("__streams.errors.stacktrace", utf8("".join(traceback.format_exception(error)))),
        ("__streams.errors.message", utf8(said(error))),
        ("__streams.errors.topic", (context.topic or "").encode()),
        ("__streams.errors.partition", str(context.partition).encode()),
        ("__streams.errors.offset", str(context.offset).encode()),
    ]
    key, value = context.raw_key, context.raw_value
    if not context.source_at_hand and context.record is not None:
        key, value = (_text(part) for part in context.record[:2])
        described.append(("__streams.errors.record", b"failed"))
    return [DeadLetter(topic, key, value, context.timestamp, [*context.headers, *described])]


def _text(part: object) -> bytes | None:
    """Return a key or a value in a form that people can read."""
    if part is None or isinstance(part, bytes):
        return part
    try:
        return utf8(part) if isinstance(part, str) else msgspec.json.encode(part)
    except Exception:  # noqa: BLE001 - any type of the user's
        return utf8(_repr(part))


def _repr(part: object) -> str:
    try:
        return repr(part)
    except Exception:  # noqa: BLE001 - user code
        return f"a {type(part).__qualname__}"


class Handlers:
    """The three configured handlers of a worker."""

    def __init__(
        self,
        deserialization: Handler = fail_on_error,
        processing: Handler = fail_on_error,
        production: Handler = fail_on_error,
        dead_letter_topic: str | None = None,
    ) -> None:
        self.deserialization = deserialization
        self.processing = processing
        self.production = production
        self.dead_letter_topic = dead_letter_topic

    def describe(
        self, kind: str, node: str, task: TaskContext, record: tuple[Any, Any, int] | None = None
    ) -> ErrorContext:
        """Return the place of an error, from the task's current record."""
        origin = task.origin
        # Of a record that waited, at most the position is known; the current record has only released it.
        if task.released or isinstance(origin, RecordContext):
            message = None
        else:
            message = task.message if origin is None else origin
        if message is None:
            timestamp = task.stream_time if record is None else record[2]
            known = origin is not None or not task.released
            return ErrorContext(
                kind=kind,
                node=node,
                task_id=str(task.task_id),
                topic=task.topic if known else None,
                partition=task.partition if known else task.task_id.partition,
                offset=task.offset if known else -1,
                raw_key=None,
                raw_value=None,
                timestamp=timestamp,
                headers=list(origin.headers or ()) if isinstance(origin, RecordContext) else [],
                record=record,
                dead_letter_topic=self.dead_letter_topic,
                source_at_hand=False,
            )
        return ErrorContext(
            kind=kind,
            node=node,
            task_id=str(task.task_id),
            topic=message.topic(),
            partition=task.partition,
            offset=task.offset,
            raw_key=_raw(message.key()),
            raw_value=_raw(message.value()),
            timestamp=message.timestamp()[1],
            headers=list(headers_of(message) or ()),
            record=record,
            dead_letter_topic=self.dead_letter_topic,
        )

    def handle(
        self,
        handler: Handler,
        context: ErrorContext,
        error: Exception,
        task: TaskContext,
        *,
        may_retry: bool = False,
    ) -> Result:
        """Call `handler` and send its dead letters; return CONTINUE or RETRY.

        Args:
            handler: the handler to call.
            context: the place of the error.
            error: the error.
            task: the task whose outbox takes the dead letters.
            may_retry: whether a retry may help. If not, RETRY counts as FAIL.

        Raises:
            ProcessingFailed: the handler returned FAIL, or raised an exception.
        """
        where = f"{context.kind} failed in node {context.node!r} of task {context.task_id}"
        if context.topic is not None:
            where += f" at {context.topic}-{context.partition} offset {context.offset}"
        try:
            answer = handler(context, error)
            response = answer if isinstance(answer, Response) else Response(answer)
        except Exception as handler_error:
            raise ProcessingFailed(f"{where}, and so did its handler: {said(handler_error)}") from handler_error
        if not isinstance(response.result, Result):
            raise ProcessingFailed(
                f"{where}, and its handler returned {kind_of(response.result)}; it must return a Result, or a Response "
                f"with one."
            ) from error
        for letter in response.dead_letters:
            try:
                check_headers(letter.headers)
            except TopologyError as wrong:
                raise ProcessingFailed(f"{where}, and its handler made a wrong dead letter: {wrong}") from error
            task.outbox.append(
                (letter.topic, letter.value, letter.key, -1, None, None, max(letter.timestamp, 0), letter.headers)
            )
        task.dead_letters += len(response.dead_letters)
        if response.result is Result.RETRY and may_retry:
            log.warning("%s: %s; retrying", where, said(error), extra={"task": context.task_id})
            return response.result
        if response.result is not Result.CONTINUE:
            cause = _cause(error, context.record)
            if isinstance(error, TopologyError | UnreadableRow | UnreadableInternalRecord):
                raise ProcessingFailed(f"{where}: {cause}. Its offset is not committed.") from error
            raise ProcessingFailed(
                f"{where}: {cause}. Its offset is not committed. Fix the cause and restart, or set "
                f"'{_SETTING[context.kind]}' to 'continue' to drop such records"
                + ("." if context.dead_letter_topic else " ('errors.dead.letter.queue.topic.name' keeps a copy).")
            ) from error
        topics = tuple(dict.fromkeys(letter.topic for letter in response.dead_letters))
        row = error if isinstance(error, UnreadableRow) else None
        waited = row.waited if row else ""
        name = f"{type(error).__name__} {(row and row.store) or place_of(error) or ''}"
        failure = Failure("send" if waited else _VERB[context.kind], name, topics, row is not None, waited)
        at = f"task {context.task_id}"
        if context.topic is not None:
            at = f"{context.topic}-{context.partition} offset {context.offset}"
        task.drop_failed(context.node, failure, _shortened(_cause(error, context.record)), at)
        return response.result


_VERB = {"Decoding": "decode", "Processing": "process", "Producing": "produce"}

_SETTING = {
    "Decoding": "deserialization.exception.handler",
    "Processing": "processing.exception.handler",
    "Producing": "production.exception.handler",
}


def _cause(error: Exception, record: tuple[Any, Any, int] | None) -> str:
    """Describe an error: of user code with its file and line, and that the value is null where that may be why."""
    place = place_of(error)
    if isinstance(error, SerializationError):
        return said(error)
    if isinstance(error, MillpondError):
        return f"{said(error).removesuffix('.')}{f' ({place})' if place else ''}"
    null = isinstance(error, TypeError | AttributeError) and record is not None and record[1] is None
    tombstone = (
        "; the record's value is null, so drop such records before with filter(), or handle None" if null else ""
    )
    return f"{type(error).__name__}: {said(error)}{f' ({place})' if place else ''}{tombstone}"


def _shortened(cause: str) -> str:
    """Return a cause as one line of limited length: messages of user code may have the whole record."""
    line = " ".join(cause.split())
    return line if len(line) <= _LONGEST_CAUSE else f"{line[:_LONGEST_CAUSE]}…"


def _raw(part: object) -> bytes | None:
    return part.encode() if isinstance(part, str) else part  # type: ignore[return-value]
