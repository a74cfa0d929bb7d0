"""Every setting of a worker: its key, type, default and documentation.

`docs/configuration.md` is generated from this module: `millpond settings --markdown`.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from millpond.runtime.processing.handlers import Handler, fail_on_error

from .parsers import (
    Parser,
    as_bool,
    as_bytes,
    as_choice,
    as_count,
    as_duration_ms,
    as_handler,
    as_level,
    as_names,
    as_object,
    as_optimization,
    as_path,
    as_reset,
    as_serde,
    as_server,
    as_servers,
    as_text,
    as_topic,
    as_url,
    as_worker,
    shown_default,
)

__all__ = ("IMPORTED", "PARSERS", "REQUIRED", "Setting", "WorkerSettings", "settings")

REQUIRED = ("application.id", "bootstrap.servers")

_SERDES = {
    name: f"millpond.serdes:{name}"
    for name in ("ByteBuffer", "Bytes", "String", "Short", "Int", "Long", "Float", "Double", "Boolean", "UUID", "Void")
}
_EXTRACTORS = {
    name: f"millpond.topology:{name}"
    for name in (
        "FailOnInvalidTimestamp",
        "LogAndSkipOnInvalidTimestamp",
        "UsePartitionTimeOnInvalidTimestamp",
        "WallclockTimestampExtractor",
    )
}
_HANDLERS = {
    "fail": "millpond.runtime.processing.handlers:fail_on_error",
    "continue": "millpond.runtime.processing.handlers:continue_on_error",
}


class Setting(NamedTuple):
    """One setting, as the reference in ``docs/configuration.md`` describes it."""

    key: str
    """Name in files, such as ``commit.interval.ms``."""
    attribute: str
    """Name in `Config`, such as ``commit_interval_ms``."""
    default: str
    """The default, as text; empty without one."""
    doc: str
    """The description, in Markdown."""
    parse: Parser
    """Returns the value to use, or raises `ValueError`."""
    required: bool
    """Whether the setting must be given."""


def _setting(key: str, parse: Parser, default: Any, doc: str, *, shown: str | None = None) -> Any:
    """Return a field of `WorkerSettings`; `shown` replaces the default in the reference."""
    metadata = {"key": key, "parse": parse, "doc": doc, "shown": shown}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True, repr=False)
class WorkerSettings:
    """The settings with fixed keys. `Config` adds those with a prefix: client properties, tags and so on."""

    application_id: str = _setting(
        "application.id", as_topic, "",
        "Name of the application. It is the consumer group, and the prefix of internal topics and transactional ids.",
    )  # fmt: skip
    bootstrap_servers: str = _setting(
        "bootstrap.servers", as_servers, "",
        "Brokers for the first connection, as `host:port,host:port`. The port is 9092 if none is given. A protocol "
        "before the host, such as `SASL_SSL://`, must be that of `security.protocol`, which chooses it.",
    )  # fmt: skip
    schema_registry_url: str = _setting(
        "schema.registry.url", as_text, "", shown="$SCHEMA_REGISTRY_URL",
        doc="Address of the schema registry for `SchemaRegistry()` without an address. The `millpond` command reads it "
        "before it loads the application. A program that makes its own `mp.Worker` gives the address to "
        "`SchemaRegistry`. Do not write a password into it: `SchemaRegistry` has settings for that.",
    )  # fmt: skip
    worker_id: str = _setting(
        "worker.id", as_worker, "w0",
        "Name of this worker within the application. Workers that run at the same time need different names. Keep the "
        "name across restarts: the worker's local state and its ownership of tasks depend on it.",
    )  # fmt: skip
    state_dir: Path = _setting(
        "state.dir", as_path, Path(), shown="$XDG_STATE_HOME/millpond or ~/.local/state/millpond",
        doc="Directory for local state. A worker uses the subdirectory `<application.id>/<worker.id>`.",
    )  # fmt: skip
    processing_guarantee: str = _setting(
        "processing.guarantee",
        as_choice("at_least_once", "exactly_once", also={"exactly_once_v2": "exactly_once"}), "at_least_once",
        "`at_least_once` or `exactly_once`. Kafka Streams' name `exactly_once_v2` means `exactly_once`. The "
        "application's code is the same for both.",
    )  # fmt: skip
    commit_interval_ms: int = _setting(
        "commit.interval.ms", as_duration_ms(0), 30_000, shown="30s, or 100ms with exactly_once",
        doc="How often output, state and offsets are committed. With `exactly_once`, consumers that read committed "
        "records only (`isolation.level=read_committed`) get the output after the commit.",
    )  # fmt: skip
    transaction_timeout_ms: int = _setting(
        "transaction.timeout.ms", as_duration_ms(1_000, 2**31 - 1), 10_000,
        "How long a transaction may stay open before the broker aborts it. Set it to at least four times the "
        "processing time of the slowest record: after a slower one, the worker processes records only between "
        "transactions for a while, which costs throughput.",
    )  # fmt: skip
    auto_offset_reset: str = _setting(
        "auto.offset.reset", as_reset, "earliest",
        "Where to start in an input without committed offsets, unless its source in the topology says otherwise: "
        "`earliest`, `latest`, `none` to stop instead, or `by_duration:` and an age, such as `by_duration:PT24H` or "
        "`by_duration:24h`, for the first record that is at most so old.",
    )  # fmt: skip
    poll_ms: int = _setting(
        "poll.ms", as_duration_ms(0, 2**31 - 1), 100,
        "Maximum time that one poll waits for records.",
    )  # fmt: skip
    buffered_records_per_partition: int = _setting(
        "buffered.records.per.partition", as_count(1), 1_000,
        "Maximum number of records read ahead per input partition. Above it, fetching from the partition pauses.",
    )  # fmt: skip
    max_task_idle_ms: int = _setting(
        "max.task.idle.ms", as_duration_ms(0, besides=(-1,)), 0,
        "How long a task processes nothing after one of its input partitions ran empty, to process its inputs in "
        "timestamp order (KIP-353). The time counts from then, not from a record of another input, so a partition that "
        "has been empty for longer is not waited for: it does not help with a table that rarely changes, but `grace=` "
        "of the join does. With 0 the task waits only for records that the broker already has; with -1 it does not "
        "wait.",
    )  # fmt: skip
    task_timeout_ms: int = _setting(
        "task.timeout.ms", as_duration_ms(0), 300_000,
        "How long the worker retries after a transient error, such as a broker that is down, before it fails.",
    )  # fmt: skip
    brokers_unreachable_timeout_ms: int = _setting(
        "brokers.unreachable.timeout.ms", as_duration_ms(1_000, 3_600_000), 30_000,
        "How long a worker may be without an answer from any broker. After that it is not ready, and its tasks move to "
        "workers that reach the brokers. If no worker reaches them, tasks stay where they are. A worker that some "
        "brokers do not answer hands its tasks over after half of this time, if another worker reaches these brokers.",
    )  # fmt: skip
    shutdown_timeout_ms: int = _setting(
        "shutdown.timeout.ms", as_duration_ms(0), 30_000,
        "Maximum time in which a stopping worker hands its tasks over and commits; after that it needs some seconds to "
        "close its clients.",
    )  # fmt: skip
    statestore_cache_max_bytes: int = _setting(
        "statestore.cache.max.bytes", as_bytes(0), 10 * 1024**2,
        "Memory of the record caches, for all stores of the worker. A larger cache forwards fewer intermediate updates "
        "of a key; the final update is the same. With 0, every update is forwarded.",
    )  # fmt: skip
    statestore_uncommitted_max_bytes: int = _setting(
        "statestore.uncommitted.max.bytes", as_bytes(1, besides=(-1,)), 64 * 1024**2,
        "Memory for state changes since the last commit. Above it, the worker commits early. -1 means no limit.",
    )  # fmt: skip
    rocksdb_block_cache_bytes: int = _setting(
        "rocksdb.block.cache.bytes", as_bytes(0), 64 * 1024**2,
        "RocksDB's block cache, for all stores of the worker. Write buffers are charged to it.",
    )  # fmt: skip
    rocksdb_row_cache_bytes: int = _setting(
        "rocksdb.row.cache.bytes", as_bytes(0, besides=(-1,)), -1,
        "Memory for decoded committed rows, which all stores of the worker share. A larger one means fewer reads from "
        "RocksDB, and changes nothing else. -1 means 256 MiB, and in a container with a memory limit at most a quarter "
        "of the limit.",
    )  # fmt: skip
    rocksdb_write_buffer_bytes: int = _setting(
        "rocksdb.write.buffer.bytes", as_bytes(64 * 1024), 32 * 1024**2,
        "RocksDB's write buffers (memtables), for all stores of the worker.",
    )  # fmt: skip
    windowstore_changelog_additional_retention_ms: int = _setting(
        "windowstore.changelog.additional.retention.ms", as_duration_ms(0), 86_400_000,
        "Added to the retention of a window or session store for its changelog: the worker deletes a record of it when "
        "stream time is later than its timestamp by both. Brokers delete nothing from it by time.",
    )  # fmt: skip
    replication_factor: int = _setting(
        "replication.factor", as_count(1, 32_767, besides=(-1,)), -1,
        "Replication factor of internal topics. -1 means the broker's default.",
    )  # fmt: skip
    repartition_purge_interval_ms: int = _setting(
        "repartition.purge.interval.ms", as_duration_ms(0), 30_000,
        "How often records that are processed and committed are deleted from repartition topics.",
    )  # fmt: skip
    default_key_serde: Any = _setting(
        "default.key.serde", as_serde(_SERDES), None,
        "Serde of keys where the topology names none: a short name such as `String`, or an import path such as "
        "`package.module:NAME`. As for the application, commands look for the module in the current directory, too.",
    )  # fmt: skip
    default_value_serde: Any = _setting(
        "default.value.serde", as_serde(_SERDES), None,
        "Serde of values where the topology names none: a short name or an import path, as in `default.key.serde`.",
    )  # fmt: skip
    default_dsl_store: str = _setting(
        "default.dsl.store", as_choice("rocksdb", "in_memory"), "rocksdb", shown="rocksDB",
        doc="Where the stores of operators are that do not say it themselves with `persistent=`: `rocksDB` is on disk, "
        "`in_memory` is in memory, to be restored from the changelog at every start.",
    )  # fmt: skip
    default_timestamp_extractor: Any = _setting(
        "default.timestamp.extractor", as_object(_EXTRACTORS, "a timestamp extractor"), None,
        "Timestamp extractor of sources that name none: a short name such as `WallclockTimestampExtractor`, or an "
        "import path.",
        shown="FailOnInvalidTimestamp",
    )  # fmt: skip
    deserialization_exception_handler: Handler = _setting(
        "deserialization.exception.handler", as_handler(_HANDLERS), fail_on_error,
        "What to do with a record that cannot be deserialized: `fail` stops the worker, `continue` drops the record, "
        "and an import path names a handler of your own.", shown="fail",
    )  # fmt: skip
    processing_exception_handler: Handler = _setting(
        "processing.exception.handler", as_handler(_HANDLERS), fail_on_error,
        "What to do with a record on which the application's code raises an exception (KIP-1033): `fail`, `continue` "
        "or an import path.", shown="fail",
    )  # fmt: skip
    production_exception_handler: Handler = _setting(
        "production.exception.handler", as_handler(_HANDLERS), fail_on_error,
        "What to do with an output record that cannot be serialized, or that the broker rejects: `fail`, `continue` or "
        "an import path.", shown="fail",
    )  # fmt: skip
    errors_dead_letter_queue_topic_name: str | None = _setting(
        "errors.dead.letter.queue.topic.name", as_topic, None,
        "Dead-letter topic for records that a handler gives up on (KIP-1034). The topic must exist.",
    )  # fmt: skip
    ensure_explicit_internal_resource_naming: bool = _setting(
        "ensure.explicit.internal.resource.naming", as_bool, False,  # noqa: FBT003 - the default
        "Whether to refuse a topology whose stores or internal topics have generated names, which change when "
        "operators are added before them (KIP-1111). With `false` such names are logged as a warning.",
    )  # fmt: skip
    topology_optimization: str = _setting(
        "topology.optimization", as_optimization, "none",
        "Rewrites of a topology that is written in the DSL: `none`, `all`, or a list of `reuse.ktable.source.topics`, "
        "`merge.repartition.topics` and `single.store.self.join`. For applications that millpond loads; in your own "
        "program give it to `builder.build(optimization=…)`, too.",
    )  # fmt: skip
    http_host: str = _setting(
        "http.host", as_text, "127.0.0.1",
        "Address on which the worker serves metrics, health checks and queries; `0.0.0.0` means every interface. If "
        "workers run on several machines, use an address that the other workers reach, or set `application.server`.",
    )  # fmt: skip
    http_port: int = _setting(
        "http.port", as_count(0, 65_535, besides=(-1,)), 0,
        "Port of metrics, health checks and queries. 0 takes a free port and logs it; -1 serves nothing.",
    )  # fmt: skip
    application_server: str | None = _setting(
        "application.server", as_server, None,
        "Address at which other workers query this one: `10.0.0.7:8080` or `http://10.0.0.7:8080`.",
        shown="from http.host and http.port",
    )  # fmt: skip
    query_port: int = _setting(
        "query.port", as_count(0, 65_535, besides=(-1,)), -1,
        "Separate port of queries, on `http.host`. 0 takes a free port; -1 serves queries on `http.port`.",
    )  # fmt: skip
    query_token_file: Path | None = _setting(
        "query.token.file", as_path, None,
        "File with bearer tokens, one per line. A query must show one of them; workers show each other the first. "
        "Without the file, queries need no token.",
    )  # fmt: skip
    query_ssl_certificate_location: Path | None = _setting(
        "query.ssl.certificate.location", as_path, None,
        "Certificate chain (PEM) with which queries are served over TLS.",
    )  # fmt: skip
    query_ssl_key_location: Path | None = _setting(
        "query.ssl.key.location", as_path, None,
        "Private key (PEM) of `query.ssl.certificate.location`, unless that file contains it.",
    )  # fmt: skip
    query_ssl_ca_location: Path | None = _setting(
        "query.ssl.ca.location", as_path, None,
        "CA certificates (PEM) to verify other workers' certificates with. Without it, the system's are used.",
    )  # fmt: skip
    query_max_concurrent: int = _setting(
        "query.max.concurrent", as_count(1, 10_000), 64,
        "Maximum number of queries answered at the same time. Further ones are rejected with status 503.",
    )  # fmt: skip
    query_max_duration_ms: int = _setting(
        "query.max.duration.ms", as_duration_ms(100), 600_000,
        "Maximum duration of one query, up to the last byte of its answer.",
    )  # fmt: skip
    coordinator_url: str | None = _setting(
        "coordinator.url", as_url, None,
        "URL of the coordinator, which assigns tasks to workers. Without it, this worker runs all tasks.",
    )  # fmt: skip
    coordinator_token_file: Path | None = _setting(
        "coordinator.token.file", as_path, None,
        "File with the token that identifies this worker to the coordinator. It is read again for every heartbeat.",
    )  # fmt: skip
    coordinator_ca_file: Path | None = _setting(
        "coordinator.ca.file", as_path, None,
        "CA certificates (PEM) to verify the coordinator's certificate with. Without it, the system's are used.",
    )  # fmt: skip
    coordinator_session_timeout_ms: int = _setting(
        "coordinator.session.timeout.ms", as_duration_ms(300, 600_000), 6_000,
        "How long the coordinator waits for a heartbeat before it considers a worker dead and reassigns its tasks.",
    )  # fmt: skip
    num_standby_replicas: int = _setting(
        "num.standby.replicas", as_count(0, 100), 0,
        "Number of standby copies of each task's state on other workers, one of which can take the task over at once. "
        "On Kubernetes, set `spec.standbyReplicas` instead.",
    )  # fmt: skip
    max_warmup_replicas: int = _setting(
        "max.warmup.replicas", as_count(0, 2**31 - 1), 2,
        "Maximum number of warm-up copies at a time, besides the standbys, for tasks that move to another worker. On "
        "Kubernetes, set `spec.maxWarmupReplicas` instead.",
    )  # fmt: skip
    acceptable_recovery_lag: int = _setting(
        "acceptable.recovery.lag", as_count(0, 2**63 - 1), 10_000,
        "Lag, in changelog records, up to which a copy counts as caught up, so that its task may move to it. On "
        "Kubernetes, set `spec.acceptableRecoveryLag` instead.",
    )  # fmt: skip
    rack_aware_assignment_tags: tuple[str, ...] = _setting(
        "rack.aware.assignment.tags", as_names, (),
        "Keys of `client.tag.<key>` in which the workers that have copies of a task should differ (KIP-708), such as "
        "`zone,cluster`.",
    )  # fmt: skip
    state_cleanup_delay_ms: int = _setting(
        "state.cleanup.delay.ms", as_duration_ms(0), 600_000,
        "How long a task's state stays on disk after the task moved to another worker.",
    )  # fmt: skip
    credentials_dir: Path | None = _setting(
        "credentials.dir", as_path, None,
        "Directory with Kafka client properties, usually a mounted Secret. Each file is named like a property, such as "
        "`sasl.password`, and contains its value. It may also contain files such as `ca.crt` that properties like "
        "`ssl.ca.location` refer to.",
    )  # fmt: skip
    bootstrap_location: str | None = _setting(
        "bootstrap.location", as_text, None,
        "Location of the application's store snapshots: `s3://bucket/prefix`, `file:///directory` or a path. A store "
        "that is far behind is restored from the newest snapshot if that is faster than reading its changelog.",
    )  # fmt: skip
    bootstrap_credentials_dir: Path | None = _setting(
        "bootstrap.credentials.dir", as_path, None,
        "Directory with credentials for object storage: files named `AWS_ACCESS_KEY_ID`, "
        "`AWS_SECRET_ACCESS_KEY`, `AWS_REGION` and `AWS_ENDPOINT_URL`, as far as `bootstrap.location` needs them. They "
        "override the environment variables of the same names.",
    )  # fmt: skip
    catalog_location: str | None = _setting(
        "catalog.location", as_text, None,
        "Location to which the application's stores are written as Apache Iceberg tables when a snapshot is made: "
        "`s3://bucket/prefix`, `file:///directory` or a path. It uses the credentials of `bootstrap.location`.",
    )  # fmt: skip
    metrics_recording_level: str = _setting(
        "metrics.recording.level", as_level, "INFO",
        "How detailed metrics are: `INFO`, `DEBUG` or `TRACE`. `DEBUG` adds figures of each node of the topology, "
        "which costs time for each record, and of the flushes of each store; `TRACE` adds latencies of nodes with "
        "stores. With `INFO` nothing is counted per record.",
    )  # fmt: skip
    revision: str = _setting(
        "revision", as_text, "",
        "Revision of the application that this worker runs, a free text. The coordinator shows it.",
    )  # fmt: skip
    tracing: str = _setting(
        "tracing", as_choice("none", "opentelemetry"), "none",
        "`opentelemetry` makes spans for records with a sampled `traceparent` header, and passes their contexts on to "
        "output; it needs the extra `otel`. With `none`, nothing looks at headers.",
    )  # fmt: skip
    log_format: str = _setting(
        "log.format", as_choice("text", "json"), "text",
        "How `millpond run` logs: `text`, or `json` with one line of JSON for each log record, exceptions included.",
    )  # fmt: skip
    log_summary_interval_ms: int = _setting(
        "log.summary.interval.ms", as_duration_ms(1, besides=(-1,)), 120_000,
        "How often the worker logs one line with what it has processed. -1 means never.",
    )  # fmt: skip


def settings() -> list[Setting]:
    """Return the description of every setting, in the order of the reference."""
    return [_described(one) for one in fields(WorkerSettings)]


def _described(one: Field[Any]) -> Setting:
    key = one.metadata["key"]
    shown = one.metadata["shown"]
    if shown is None:
        shown = shown_default(key, one.default)
    return Setting(key, one.name, shown, one.metadata["doc"], one.metadata["parse"], key in REQUIRED)


PARSERS = {one.key: one.parse for one in settings()}
"""The parser of each setting, by key."""

IMPORTED = frozenset(
    {
        "default.key.serde",
        "default.value.serde",
        "default.timestamp.extractor",
        "deserialization.exception.handler",
        "processing.exception.handler",
        "production.exception.handler",
    }
)
"""The settings that may be an import path, of which some commands need nothing."""
