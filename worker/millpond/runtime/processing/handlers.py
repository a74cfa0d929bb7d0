"""What happens to a record that cannot be decoded, processed or produced (KIP-161, KIP-210, KIP-1033, KIP-1034).

A handler answers FAIL, CONTINUE or (production only) RETRY. `fail` and `continue` are the built-in ones; both
send the source record to the dead-letter topic when one is configured, through the task's own outbox and so
inside the same transaction.
"""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millpond.checks import kind_of
from millpond.errors import ProcessingFailed, SerializationError

from .context import TaskContext, headers_of

__all__ = (
    "ErrorContext",
    "Handler",
    "Handlers",
    "Response",
    "Result",
    "continue_on_error",
    "dead_letter",
    "fail_on_error",
)

log = logging.getLogger(__name__)


class Result(enum.Enum):
    """What to do after an error."""

    FAIL = "fail"
    CONTINUE = "continue"
    RETRY = "retry"


class DeadLetter(NamedTuple):
    """A record for the dead-letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]


class Response(NamedTuple):
    """A handler's answer, with records to send to dead-letter topics."""

    result: Result
    dead_letters: Sequence[DeadLetter] = ()


class ErrorContext(NamedTuple):
    """Where an error happened. The raw source record is None inside punctuators, and for what a cache held back.

    `record` is what could not be processed or produced: (key, value, timestamp) of the processing handler, or the
    outgoing record of the production handler; None for the deserialization handler.
    """

    kind: str
    node: str
    task_id: str
    topic: str | None
    partition: int
    offset: int
    raw_key: bytes | None
    raw_value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]
    record: tuple[Any, Any, int] | None
    dead_letter_topic: str | None


Handler = Callable[[ErrorContext, Exception], Response | Result]


def fail_on_error(context: ErrorContext, error: Exception) -> Response:
    """Stop the worker at the error; nothing of the failed transaction is committed."""
    return Response(Result.FAIL, dead_letter(context, error))


def continue_on_error(context: ErrorContext, error: Exception) -> Response:
    """Drop the record, count it, and go on."""
    return Response(Result.CONTINUE, dead_letter(context, error))


def dead_letter(context: ErrorContext, error: Exception) -> list[DeadLetter]:
    """The source record as a dead letter (KIP-1034), for custom handlers as well; empty without a configured topic."""
    topic = context.dead_letter_topic
    if topic is None:
        return []
    described: list[tuple[str, bytes | None]] = [
        ("__streams.errors.exception", type(error).__qualname__.encode()),
        ("__streams.errors.stacktrace", "".join(traceback.format_exception(error)).encode()),
        ("__streams.errors.message", str(error).encode()),
        ("__streams.errors.topic", (context.topic or "").encode()),
        ("__streams.errors.partition", str(context.partition).encode()),
        ("__streams.errors.offset", str(context.offset).encode()),
    ]
    return [
        DeadLetter(topic, context.raw_key, context.raw_value, context.timestamp, [*context.headers, *described]),
    ]


class Handlers:
    """The three configured handlers of a worker, and what their answers mean for a task."""

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
        """The error's place, from the task's current record."""
        message = task.message
        if message is None:
            timestamp = task.stream_time if record is None else record[2]
            return ErrorContext(
                kind, node, str(task.task_id), task.topic, task.partition, task.offset, None, None, timestamp, [], record,
                self.dead_letter_topic,
            )  # fmt: skip
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
        may_pass: bool = False,
    ) -> Result:
        """Ask `handler`; send its dead letters; returns CONTINUE or RETRY.

        Args:
            handler: whom to ask.
            context: where it happened.
            error: what happened.
            task: whose outbox takes the dead letters.
            may_pass: trying again may help; where it cannot, RETRY counts as FAIL.

        Raises:
            ProcessingFailed: the answer is FAIL, or the handler itself raised.
        """
        where = f"{context.kind} failed in node {context.node!r} of task {context.task_id}"
        if context.topic is not None:
            where += f" at {context.topic}-{context.partition} offset {context.offset}"
        try:
            answer = handler(context, error)
            response = answer if isinstance(answer, Response) else Response(answer)
        except Exception as handler_error:
            raise ProcessingFailed(f"{where}, and so did its handler: {handler_error}") from handler_error
        if not isinstance(response.result, Result):
            raise ProcessingFailed(
                f"{where}, and its handler returned {kind_of(response.result)}; return a Result, or a Response with one."
            ) from error
        for letter in response.dead_letters:
            task.outbox.append(
                (letter.topic, letter.value, letter.key, -1, None, None, max(letter.timestamp, 0), letter.headers)
            )
        if response.result is Result.RETRY and may_pass:
            log.warning("%s; trying again: %s", where, error, extra={"task": context.task_id})
            return response.result
        if response.result is not Result.CONTINUE:
            cause = str(error) if isinstance(error, SerializationError) else f"{type(error).__name__}: {error}"
            raise ProcessingFailed(
                f"{where}: {cause}. Nothing of it is committed. Fix the cause and restart, or set "
                f"'{_SETTING[context.kind]}' to 'continue' to drop such records"
                + ("." if context.dead_letter_topic else " ('errors.dead.letter.queue.topic.name' keeps a copy).")
            ) from error
        task.dropped += 1
        log.warning("%s; the record is dropped: %s", where, type(error).__name__, extra={"task": context.task_id})
        return response.result


_SETTING = {
    "Decoding": "deserialization.exception.handler",
    "Processing": "processing.exception.handler",
    "Producing": "production.exception.handler",
}


def _raw(part: object) -> bytes | None:
    return part.encode() if isinstance(part, str) else part  # type: ignore[return-value]
