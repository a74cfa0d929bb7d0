"""The spans of records in OpenTelemetry (extra `otel`), with `tracing = opentelemetry`."""

from __future__ import annotations

import logging
import threading
from typing import Any

from confluent_kafka import Message

from millpond.errors import ConfigError
from millpond.runtime.config.model import Config
from millpond.runtime.processing.tracing import Parent, Tracing
from millpond.texts import well_formed
from millpond.topology import TaskId

__all__ = ("OpenTelemetryTracing", "open_tracing")

log: logging.Logger = logging.getLogger(__name__)

#: How long the end of a worker waits for a collector. The exporter itself would try again for half a minute.
_EXPORT_TIMEOUT_S = 5.0
#: Spans that are open at the same time, at some 4 KB each. They end with a commit, all at once, and OpenTelemetry's
#: queue to the exporter has room for as many (`OTEL_BSP_MAX_QUEUE_SIZE`).
_MAX_OPEN = 2_048


def open_tracing(config: Config) -> Tracing | None:
    """Return the traces of a worker; None if they are off.

    The application's own `TracerProvider` is used if it has set one. Otherwise spans are exported by OTLP over HTTP, as
    OpenTelemetry's environment variables say, such as `OTEL_EXPORTER_OTLP_ENDPOINT`.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    if config.tracing == "none":
        return None
    try:
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        if not isinstance(provider, trace.ProxyTracerProvider):
            return OpenTelemetryTracing(config, provider)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"setting 'tracing' is 'opentelemetry', which is not installed ({error}): install millpond[otel], or set "
            'tracing = "none".'
        ) from error
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": config.application_id}))
    resource = resource.merge(Resource({"service.instance.id": config.worker_id}))
    own = TracerProvider(resource=resource, shutdown_on_exit=False)
    own.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetryTracing(config, own, owned=True)


class OpenTelemetryTracing:
    """Starts spans with an OpenTelemetry tracer.

    Args:
        config: the worker's configuration.
        provider: an OpenTelemetry `TracerProvider`.
        owned: whether the provider ends with the worker.
    """

    def __init__(self, config: Config, provider: Any, *, owned: bool = False) -> None:
        from opentelemetry import trace

        self._trace: Any = trace
        self._provider = provider
        self._owned = owned
        self._tracer: Any = provider.get_tracer("millpond")
        self._common = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": config.application_id,
            "messaging.client.id": config.worker_id,
        }
        self._failed = False
        self._open: set[_Span] = set()
        self._crowded = False

    def start(self, parent: Parent, task: TaskId, message: Message) -> _Span | None:
        """Start the span of a record; return None if the sampler of the provider drops it, or too many are open."""
        if len(self._open) >= _MAX_OPEN:
            if not self._crowded:
                self._crowded = True
                log.warning(
                    "tracing: more than %d sampled records between two commits; those after them have no span in this "
                    "application, and their output continues the trace without it. Let producers sample fewer records, "
                    "or commit more often.",
                    _MAX_OPEN,
                )
            return None
        trace, topic = self._trace, message.topic()
        try:
            context = trace.SpanContext(
                int(parent.trace_id, 16),
                int(parent.span_id, 16),
                is_remote=True,
                trace_flags=trace.TraceFlags(parent.flags),
                trace_state=trace.TraceState.from_header([(parent.state or b"").decode(errors="replace")]),
            )
            span = self._tracer.start_span(
                f"process {topic}",
                context=trace.set_span_in_context(trace.NonRecordingSpan(context)),
                kind=trace.SpanKind.CONSUMER,
                attributes={
                    **self._common,
                    "messaging.destination.name": topic,
                    "messaging.destination.partition.id": str(message.partition()),
                    "messaging.kafka.offset": message.offset(),
                    "millpond.task": str(task),
                    "millpond.subtopology": task.subtopology,
                },
            )
        except Exception:
            if not self._failed:
                self._failed = True
                log.exception("tracing: cannot start a span; such records have none")
            return None
        if not span.is_recording():
            return None
        found = _Span(trace, span, self._open)
        self._open.add(found)
        return found

    def close(self) -> None:
        """Export the spans that have ended, and end the provider, if it is the worker's own; waits for at most 5 s."""
        if not self._owned:
            return
        ending = threading.Thread(target=self._provider.shutdown, name="millpond-spans", daemon=True)
        ending.start()
        ending.join(_EXPORT_TIMEOUT_S)
        if ending.is_alive():
            log.warning("tracing: the collector does not answer; the last spans are lost")


class _Span:
    """An OpenTelemetry span; `header` is the `traceparent` of output."""

    __slots__ = ("_open", "_outer", "_span", "_trace", "header")

    def __init__(self, trace: Any, span: Any, open_spans: set[_Span]) -> None:
        self._open = open_spans
        self._trace = trace
        self._span = span
        self._outer: Any = None
        context = span.get_span_context()
        self.header: bytes = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()

    def enter(self) -> None:
        """Make it OpenTelemetry's current span of this thread."""
        from opentelemetry import context

        self._outer = context.attach(self._trace.set_span_in_context(self._span))

    def leave(self) -> None:
        """Make the span before it the current one."""
        from opentelemetry import context

        context.detach(self._outer)

    def end(self, error: str | None = None) -> None:
        """End the span, with an error if its results are not committed. Later calls do nothing."""
        span, self._span = self._span, None
        if span is None:
            return
        self._open.discard(self)
        try:
            if error is not None:
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, well_formed(error)))
            span.end()
        except Exception:
            log.exception("tracing: cannot end a span")
