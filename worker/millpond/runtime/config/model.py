"""The configuration of a worker: Kafka Streams' own settings, typed, from file, environment, flags or code.

What is given later wins: defaults, then the file (TOML), then the environment (``MILLPOND_…``), then a directory of
credentials, then flags or arguments. A setting nobody knows, or a value that cannot be used, is a `ConfigError` that names the setting, where it
came from, and the nearest right one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from millpond.checks import kind_of
from millpond.errors import ConfigError
from millpond.runtime.processing.handlers import Handler, fail_on_error

from . import client_settings as clients
from .client_properties import ALIASES
from .parsers import (
    Parser,
    Secret,
    as_bytes,
    as_choice,
    as_count,
    as_duration_ms,
    as_handler,
    as_names,
    as_object,
    as_path,
    as_serde,
    as_server,
    as_text,
    as_topic,
    as_url,
    as_worker,
    shown_default,
)
from .sources import Collected, read_toml, spelled, variable_for

__all__ = ("Config", "Secret", "Setting", "check_config", "settings")

_Properties = Mapping[str, clients.ClientValue]
_NONE: _Properties = MappingProxyType({})

REQUIRED = ("application.id", "bootstrap.servers")

_SERDES = {
    name: f"millpond.serdes:{name}"
    for name in ("Bytes", "String", "Short", "Int", "Long", "Float", "Double", "Boolean", "UUID", "Void")
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
    """What is known about one setting; the reference in ``docs/configuration.md`` is written from these."""

    key: str
    attribute: str
    default: str
    doc: str
    parse: Parser
    required: bool


def _setting(key: str, parse: Parser, default: Any, doc: str, *, shown: str | None = None) -> Any:
    """A field of `Config`; `shown` is the default in the reference where the value itself would say less."""
    metadata = {"key": key, "parse": parse, "doc": doc, "shown": shown}
    return field(default=default, metadata=metadata)


def _state_home() -> Path:
    """Where applications keep state on this machine; unlike a temporary directory it survives a restart."""
    if home := os.environ.get("XDG_STATE_HOME"):
        return Path(home) / "millpond"
    try:
        return Path.home() / ".local" / "state" / "millpond"
    except RuntimeError:  # no home directory, as in some containers
        return Path(tempfile.gettempdir()) / "millpond"


@dataclass(frozen=True, kw_only=True, repr=False)
class Config:
    """One worker's settings. Build it with `Config.of` in code, or `Config.load` from file, environment and flags.

    Attributes are the keys with underscores: ``commit.interval.ms`` is `commit_interval_ms`. Durations are integer
    milliseconds, sizes bytes.
    """

    application_id: str = _setting(
        "application.id", as_topic, "",
        "Names the application: its consumer group, and the prefix of its internal topics and transactional ids.",
    )  # fmt: skip
    bootstrap_servers: str = _setting(
        "bootstrap.servers", as_text, "", "Brokers to begin with, as `host:port,host:port`."
    )
    worker_id: str = _setting(
        "worker.id", as_worker, "w0",
        "Names this worker within the application. It must be its own for each worker that runs at the same time, and "
        "the same after a restart, since the worker's state and its tasks are found by it.",
    )  # fmt: skip
    state_dir: Path = _setting(
        "state.dir", as_path, Path(), shown="$XDG_STATE_HOME/millpond or ~/.local/state/millpond",
        doc="Where local state is kept, in a directory per application and worker.",
    )  # fmt: skip
    processing_guarantee: str = _setting(
        "processing.guarantee",
        as_choice("at_least_once", "exactly_once", also={"exactly_once_v2": "exactly_once"}), "at_least_once",
        "`at_least_once` or `exactly_once` (Kafka Streams' `exactly_once_v2` is the same). The one knob: nothing in an "
        "application changes with it.",
    )  # fmt: skip
    commit_interval_ms: int = _setting(
        "commit.interval.ms", as_duration_ms(0), 30_000, shown="30s, or 100ms with exactly_once",
        doc="How often output, state and offsets are committed. Output of exactly-once applications is seen by others "
        "when it is committed.",
    )  # fmt: skip
    transaction_timeout_ms: int = _setting(
        "transaction.timeout.ms", as_duration_ms(1_000, 2**31 - 1), 10_000,
        "How long the broker keeps a transaction open for a worker that went silent. Records that take longer than a "
        "quarter of it are processed while no transaction is open, which costs throughput.",
    )  # fmt: skip
    auto_offset_reset: str = _setting(
        "auto.offset.reset", as_choice("earliest", "latest", "none"), "earliest",
        "Where to begin in a topic the application has not read before, unless its source says so itself.",
    )  # fmt: skip
    poll_ms: int = _setting(
        "poll.ms", as_duration_ms(0, 2**31 - 1), 100, "The longest wait for records when there are none."
    )
    buffered_records_per_partition: int = _setting(
        "buffered.records.per.partition", as_count(1), 1_000,
        "Records read ahead of processing, per partition; beyond it, fetching the partition stops for a while.",
    )  # fmt: skip
    max_task_idle_ms: int = _setting(
        "max.task.idle.ms", as_duration_ms(0, besides=(-1,)), 0,
        "How long a task waits for a partition that has nothing to read, to keep time order across its inputs "
        "(KIP-353). 0 waits only for records the broker is known to have, -1 for nothing.",
    )  # fmt: skip
    task_timeout_ms: int = _setting(
        "task.timeout.ms", as_duration_ms(0), 300_000,
        "How long a task retries after errors that may pass, such as a broker that is away, before it fails.",
    )  # fmt: skip
    brokers_unreachable_timeout_ms: int = _setting(
        "brokers.unreachable.timeout.ms", as_duration_ms(1_000, 3_600_000), 30_000,
        "A worker that no broker answers for so long is not ready any more, and its tasks go to workers that have "
        "brokers. Where no worker has any, tasks stay where they are.",
    )  # fmt: skip
    shutdown_timeout_ms: int = _setting(
        "shutdown.timeout.ms", as_duration_ms(0), 30_000, "How long a stopping worker may take for its last commit."
    )
    statestore_cache_max_bytes: int = _setting(
        "statestore.cache.max.bytes", as_bytes(0), 10 * 1024**2,
        "Memory for record caches. A larger one sends on fewer updates of the same key; the last one is the same.",
    )  # fmt: skip
    statestore_uncommitted_max_bytes: int = _setting(
        "statestore.uncommitted.max.bytes", as_bytes(1, besides=(-1,)), 64 * 1024**2,
        "State changed since the last commit; more of it makes the worker commit early. -1 sets no limit.",
    )  # fmt: skip
    rocksdb_block_cache_bytes: int = _setting(
        "rocksdb.block.cache.bytes", as_bytes(0), 64 * 1024**2,
        "Memory RocksDB reads through, for all stores of the worker together; write buffers are charged to it.",
    )  # fmt: skip
    rocksdb_row_cache_bytes: int = _setting(
        "rocksdb.row.cache.bytes", as_bytes(0), 64 * 1024**2,
        "Memory for committed rows kept decoded in front of RocksDB, for all stores of the worker together. It decides "
        "how often RocksDB is read, and nothing else.",
    )  # fmt: skip
    rocksdb_write_buffer_bytes: int = _setting(
        "rocksdb.write.buffer.bytes", as_bytes(64 * 1024), 32 * 1024**2,
        "Memory RocksDB collects writes in before it writes files, for all stores of the worker together.",
    )  # fmt: skip
    windowstore_changelog_additional_retention_ms: int = _setting(
        "windowstore.changelog.additional.retention.ms", as_duration_ms(0), 86_400_000,
        "Added to a window store's retention for its changelog, against clocks that differ.",
    )  # fmt: skip
    replication_factor: int = _setting(
        "replication.factor", as_count(1, 32_767, besides=(-1,)), -1,
        "Replicas of internal topics; -1 leaves it to the broker.",
    )  # fmt: skip
    repartition_purge_interval_ms: int = _setting(
        "repartition.purge.interval.ms", as_duration_ms(0), 30_000,
        "How often records that were processed are deleted from repartition topics.",
    )  # fmt: skip
    default_key_serde: Any = _setting(
        "default.key.serde", as_serde(_SERDES), None,
        "Serde of keys where the topology names none: a name such as `String`, or an import path such as "
        "`package.module:NAME`.",
    )  # fmt: skip
    default_value_serde: Any = _setting(
        "default.value.serde", as_serde(_SERDES), None, "Serde of values where the topology names none."
    )
    default_timestamp_extractor: Any = _setting(
        "default.timestamp.extractor", as_object(_EXTRACTORS, "a timestamp extractor"), None,
        "Where a record's event time comes from unless its source says so: a name or an import path.",
        shown="FailOnInvalidTimestamp",
    )  # fmt: skip
    deserialization_exception_handler: Handler = _setting(
        "deserialization.exception.handler", as_handler(_HANDLERS), fail_on_error,
        "What becomes of a record whose bytes cannot be decoded: `fail`, `continue`, or an import path.", shown="fail",
    )  # fmt: skip
    processing_exception_handler: Handler = _setting(
        "processing.exception.handler", as_handler(_HANDLERS), fail_on_error,
        "What becomes of a record on which the application's own code raises (KIP-1033).", shown="fail",
    )  # fmt: skip
    production_exception_handler: Handler = _setting(
        "production.exception.handler", as_handler(_HANDLERS), fail_on_error,
        "What becomes of a record that cannot be encoded, or that the broker refuses.", shown="fail",
    )  # fmt: skip
    errors_dead_letter_queue_topic_name: str | None = _setting(
        "errors.dead.letter.queue.topic.name", as_topic, None,
        "Topic for records the handlers give up on (KIP-1034). It must exist.",
    )  # fmt: skip
    topology_optimization: str = _setting(
        "topology.optimization", as_choice("none"), "none", "Only `none`: topologies run as they are written."
    )
    http_host: str = _setting(
        "http.host", as_text, "127.0.0.1",
        "Address on which metrics, health and queries are served; `0.0.0.0` for every interface. Where workers are on "
        "several machines, it is one that the others reach, or 'application.server' names that.",
    )  # fmt: skip
    http_port: int = _setting(
        "http.port", as_count(0, 65_535, besides=(-1,)), 0,
        "Its port; 0 takes a free one, which is logged, and -1 serves nothing.",
    )  # fmt: skip
    application_server: str | None = _setting(
        "application.server", as_server, None,
        "Where other workers reach this one's HTTP interface for queries: `10.0.0.7:8080`, or `http://10.0.0.7:8080`.",
        shown="from http.host and http.port",
    )  # fmt: skip
    query_port: int = _setting(
        "query.port", as_count(0, 65_535, besides=(-1,)), -1,
        "Port of queries, on `http.host`; 0 takes a free one, and -1 answers them on `http.port`, too.",
    )  # fmt: skip
    query_token_file: Path | None = _setting(
        "query.token.file", as_path, None,
        "File of tokens, one per line. Queries show any of them, workers the first one; without it, nobody has to.",
    )  # fmt: skip
    query_ssl_certificate_location: Path | None = _setting(
        "query.ssl.certificate.location", as_path, None, "Certificate chain (PEM) to answer queries with over TLS."
    )
    query_ssl_key_location: Path | None = _setting(
        "query.ssl.key.location", as_path, None, "Its private key (PEM), unless that is in the same file."
    )
    query_ssl_ca_location: Path | None = _setting(
        "query.ssl.ca.location", as_path, None,
        "Certificates (PEM) that may have signed those of other workers; those of the system when not given.",
    )  # fmt: skip
    query_max_concurrent: int = _setting(
        "query.max.concurrent", as_count(1, 10_000), 64, "Queries answered at the same time; more are refused with 503."
    )
    query_max_duration_ms: int = _setting(
        "query.max.duration.ms", as_duration_ms(100), 600_000, "How long the answer to one query may take, to its end."
    )
    coordinator_url: str | None = _setting(
        "coordinator.url", as_url, None,
        "The coordinator that says which worker runs which task. Without one, this worker runs every task.",
    )  # fmt: skip
    coordinator_token_file: Path | None = _setting(
        "coordinator.token.file", as_path, None,
        "File with the token that shows the coordinator who this worker is; it is read again for every heartbeat.",
    )  # fmt: skip
    coordinator_ca_file: Path | None = _setting(
        "coordinator.ca.file", as_path, None,
        "Certificates (PEM) that may have signed the coordinator's; those of the system when not given.",
    )  # fmt: skip
    coordinator_session_timeout_ms: int = _setting(
        "coordinator.session.timeout.ms", as_duration_ms(300, 600_000), 6_000,
        "A worker that the coordinator does not hear of for so long counts as gone, and its tasks go to others.",
    )  # fmt: skip
    num_standby_replicas: int = _setting(
        "num.standby.replicas", as_count(0, 100), 0,
        "Copies of each task's state that other workers keep, so that one of them can go on at once.",
    )  # fmt: skip
    max_warmup_replicas: int = _setting(
        "max.warmup.replicas", as_count(0, 10_000), 2,
        "Copies made at a time, beside the standbys, for tasks that are to move to another worker.",
    )  # fmt: skip
    acceptable_recovery_lag: int = _setting(
        "acceptable.recovery.lag", as_count(0, 2**63 - 1), 10_000,
        "Changelog records a copy may be behind for its task to move there.",
    )  # fmt: skip
    rack_aware_assignment_tags: tuple[str, ...] = _setting(
        "rack.aware.assignment.tags", as_names, (),
        "Keys of `client.tag.<key>` in which the copies of a task should differ (KIP-708), such as `zone,cluster`.",
    )  # fmt: skip
    state_cleanup_delay_ms: int = _setting(
        "state.cleanup.delay.ms", as_duration_ms(0), 600_000,
        "How long the state of a task stays on disk after the task went to another worker.",
    )  # fmt: skip
    credentials_dir: Path | None = _setting(
        "credentials.dir", as_path, None,
        "Directory with properties of the Kafka clients: each file is named like one, as `sasl.password`, and holds its "
        "value. It is where a Secret is mounted. Files such as `ca.crt` may lie there too, for `ssl.ca.location` and "
        "its like to point at.",
    )  # fmt: skip
    bootstrap_location: str | None = _setting(
        "bootstrap.location", as_text, None,
        "Where snapshots of the application's stores are: `s3://bucket/prefix`, `file:///directory` or a path. A store that is far "
        "behind is restored from the newest one where that is quicker than its changelog.",
    )  # fmt: skip
    bootstrap_credentials_dir: Path | None = _setting(
        "bootstrap.credentials.dir", as_path, None,
        "Directory with a file for each of `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` that "
        "`bootstrap.location` needs; they override the environment variables of those names.",
    )  # fmt: skip
    catalog_location: str | None = _setting(
        "catalog.location", as_text, None,
        "Where the application's stores are written as Apache Iceberg tables when a snapshot is made: `s3://bucket/prefix`, "
        "`file:///directory` or a path. Credentials are those of `bootstrap.location`.",
    )  # fmt: skip
    revision: str = _setting(
        "revision", as_text, "", "What this worker runs, as whoever started it calls that; the coordinator shows it."
    )
    log_summary_interval_ms: int = _setting(
        "log.summary.interval.ms", as_duration_ms(1, besides=(-1,)), 120_000,
        "How often one line sums up what was processed; -1 for never.",
    )  # fmt: skip

    consumer: _Properties = field(default_factory=dict)
    """Properties for the consumer, by librdkafka's names; see `consumer_settings`."""
    producer: _Properties = field(default_factory=dict)
    """Properties for the producer."""
    admin: _Properties = field(default_factory=dict)
    """Properties for the admin client."""
    topic: Mapping[str, str] = field(default_factory=dict)
    """Topic configuration for every internal topic, from the prefix ``topic.``."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Where this worker is, from the prefix ``client.tag.``: values by key, such as zone (KIP-708)."""
    app: Mapping[str, object] = field(default_factory=dict)
    """The application's own settings, from the prefix ``app.``; millpond does not look at them."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where each setting that was given came from, by key."""

    def __post_init__(self) -> None:
        for one in fields(self):
            given = getattr(self, one.name)
            if "key" in one.metadata and isinstance(one.default, int) and not isinstance(given, int):
                raise ConfigError(
                    f"setting '{one.metadata['key']}' was given to Config() as {kind_of(given)}, and is used as it is there: "
                    "write Config.of(…), which reads it."
                )

    @classmethod
    def of(
        cls, given: Mapping[str, object] | None = None, /, *, required: Collection[str] = REQUIRED, **keywords: object
    ) -> Self:
        """A configuration from code alone: no file and no environment.

        Args:
            given: settings by key, such as ``{"consumer.fetch.min.bytes": 1}``.
            required: keys that must be given; pass ``()`` where no broker is used.
            keywords: settings by attribute, such as ``commit_interval_ms=100`` or
                ``commit_interval=timedelta(milliseconds=100)``.

        Raises:
            ConfigError: a setting is unknown, missing, or has a value that cannot be used.
        """
        if not isinstance(given, Mapping | None):
            raise ConfigError(f"Config.of() takes settings by key in a dictionary, or by name, not {kind_of(given)}.")
        collected = Collected(_PARSERS)
        collected.add_credentials(keywords.get("credentials_dir", (given or {}).get("credentials.dir")))
        for key, value in (given or {}).items():
            collected.add(key, value, "given in code")
        for name, value in keywords.items():
            collected.add(spelled(name, _PARSERS), value, f"given as {name}")
        return cls._from(collected, required)

    @classmethod
    def load(
        cls,
        file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        *,
        required: Collection[str] = REQUIRED,
    ) -> Self:
        """A configuration from a file, then the environment, then credentials, then flags; what comes later wins.

        Args:
            file: a TOML file; dotted keys and tables mean the same. None reads no file.
            environ: the environment, of which ``MILLPOND_…`` is read; `os.environ` when None. Empty values count as
                not given. ``MILLPOND_CONFIG_INLINE`` is a JSON object of settings, which come before the others.
            flags: settings by key from the command line.
            required: keys that must be given.

        Raises:
            ConfigError: the file cannot be read, or a setting is unknown, missing, or has a value that cannot be used.
        """
        collected = Collected(_PARSERS)
        if file is not None:
            for key, value in read_toml(Path(file)):
                collected.add(key, value, f"in {os.fspath(file)}")
        collected.add_environment(os.environ if environ is None else environ)
        collected.add_credentials((flags or {}).get("credentials.dir", collected.own.get("credentials.dir")))
        for key, value in (flags or {}).items():
            collected.add(key, value, "given on the command line")
        return cls._from(collected, required)

    @classmethod
    def _from(cls, collected: Collected, required: Collection[str]) -> Self:
        for key in required:
            if key not in collected.own:
                raise ConfigError(
                    f"setting '{key}' is missing: give it in the configuration file, as {variable_for(key)} in the "
                    f"environment, or on the command line as --{key.replace('.', '-')}."
                )
        values: dict[str, Any] = {_attribute(key): value for key, value in collected.own.items()}
        values.setdefault("state_dir", _state_home())
        if values.get("processing_guarantee") == "exactly_once":
            values.setdefault("commit_interval_ms", 100)
        for client, properties in collected.clients().items():
            values[client] = MappingProxyType(properties)
        values["topic"] = MappingProxyType(collected.topic)
        values["tags"] = MappingProxyType(collected.tags)
        values["app"] = MappingProxyType(collected.app)
        values["origins"] = MappingProxyType(collected.origins)
        config = cls(**values)
        if config.exactly_once and config.transaction_timeout_ms < config.commit_interval_ms:
            raise ConfigError(
                f"'transaction.timeout.ms' ({config.transaction_timeout_ms}) must not be shorter than "
                f"'commit.interval.ms' ({config.commit_interval_ms}): the broker would abort every transaction before "
                "its commit."
            )
        return config

    @property
    def exactly_once(self) -> bool:
        """Whether the guarantee is ``exactly_once``."""
        return self.processing_guarantee == "exactly_once"

    @property
    def directory(self) -> Path:
        """This worker's own directory below `state_dir`."""
        return self.state_dir / self.application_id / self.worker_id

    def consumer_settings(self, defaults: _Properties = _NONE, fixed: _Properties = _NONE) -> clients.ClientSettings:
        """What to build the consumer from, secrets in clear: hand it to the client and to nothing else.

        Args:
            defaults: properties by any of librdkafka's names that the configuration may override.
            fixed: properties that override the configuration.
        """
        return self._client(defaults, self.consumer, fixed)

    def producer_settings(self, defaults: _Properties = _NONE, fixed: _Properties = _NONE) -> clients.ClientSettings:
        """What to build the producer from; see `consumer_settings`."""
        return self._client(defaults, self.producer, fixed)

    def admin_settings(self, defaults: _Properties = _NONE, fixed: _Properties = _NONE) -> clients.ClientSettings:
        """What to build the admin client from; see `consumer_settings`."""
        return self._client(defaults, self.admin, fixed)

    def _client(self, *layers: _Properties) -> clients.ClientSettings:
        built = clients.ClientSettings({"bootstrap.servers": self.bootstrap_servers})
        for layer in layers:
            for name, value in layer.items():
                # One name per property: librdkafka would let the last of two synonyms win.
                built[ALIASES.get(name, name)] = value.reveal() if isinstance(value, Secret) else value
        return built

    def as_mapping(self) -> Mapping[str, object]:
        """All settings by key, as processors see them; secrets stay hidden."""
        flat: dict[str, object] = {one.key: getattr(self, one.attribute) for one in settings()}
        for prefix in (*clients.CLIENTS, "topic", "app"):
            flat.update({f"{prefix}.{name}": value for name, value in getattr(self, prefix).items()})
        flat.update({f"client.tag.{key}": value for key, value in self.tags.items()})
        return MappingProxyType(flat)

    def __repr__(self) -> str:
        flat = self.as_mapping()
        return f"Config({', '.join(f'{key}={flat[key]!r}' for key in self.origins if key in flat)})"


def check_config(given: object) -> None:
    """Refuse what is no `Config`.

    Raises:
        ConfigError: it is something else, such as a dictionary of settings.
    """
    if not isinstance(given, Config):
        hint = "; mp.Config.of(settings) makes one of it" if isinstance(given, Mapping) else ""
        raise ConfigError(f"a worker needs a Config, not {kind_of(given)}{hint}.")


def settings() -> list[Setting]:
    """Everything there is to know about millpond's own settings, in the order of `Config`."""
    return [_described(one) for one in fields(Config) if "key" in one.metadata]


def _described(one: Field[Any]) -> Setting:
    key = one.metadata["key"]
    shown = one.metadata["shown"]
    if shown is None:
        shown = shown_default(key, one.default)
    return Setting(key, one.name, shown, one.metadata["doc"], one.metadata["parse"], key in REQUIRED)


def _attribute(key: str) -> str:
    return key.replace(".", "_")


_PARSERS = {one.key: one.parse for one in settings()}
