"""Logs as JSON: one line for each log record, with the same field names in workers, operator and coordinator."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback

from millpond.texts import said, well_formed

__all__ = ("FORMATS", "JsonFormatter", "log_as_json", "logs_json")

FORMATS = ("text", "json")
"""The formats of logs."""

log: logging.Logger = logging.getLogger("millpond")


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON, in ASCII, so that no encoding of a terminal or a pipe changes it.

    The fields are `time` (RFC 3339 in UTC, with milliseconds), `level`, `logger`, `thread`, `message`, the fields given
    here, within an OpenTelemetry span `trace_id` and `span_id`, and for an exception `error_type`, `error_message` and
    `traceback`. Nothing else of the record is written.

    Args:
        fields: further fields of each line, such as the application's id.
    """

    def __init__(self, **fields: str) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName or "",
            "message": _message(record),
            **self._fields,
            **_span_ids(),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error_type"] = type(error).__name__
            line["error_message"] = said(error)
            line["traceback"] = "".join(traceback.format_exception(error))
        elif record.stack_info:
            line["traceback"] = record.stack_info
        return json.dumps({name: well_formed(text) for name, text in line.items()})


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit the text, or whose str() fails: the line is more important
        return str(record.msg)


def _span_ids() -> dict[str, str]:
    """Return the ids of the current span, named as in OpenTelemetry's log formats; empty without one."""
    trace = sys.modules.get("opentelemetry.trace")  # whoever has made a span has imported it
    if trace is None:
        return {}
    try:
        context = trace.get_current_span().get_span_context()
        return (
            {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"} if context.is_valid else {}
        )
    except Exception:  # noqa: BLE001 - such as an import that is not complete: the line is more important
        return {}


def log_as_json(level: int | str = logging.WARNING, **fields: str) -> None:
    """Log to standard error as JSON, also warnings of Python and exceptions that end a thread.

    Args:
        level: the lowest level of loggers that have none of their own.
        fields: further fields of each line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(**fields))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_thread_error


def logs_json() -> bool:
    """Return whether logs are JSON, so that nothing else may be written to standard error."""
    return any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers)


def _log_thread_error(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is SystemExit:
        return
    name = "" if ended.thread is None else ended.thread.name
    error = ended.exc_value or ended.exc_type()
    log.critical("thread %s: ended by an exception", name, exc_info=error)
