"""The sources of settings, which one wins, and the errors for a wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import serdes
from millpond.errors import ConfigError
from millpond.runtime.config.model import Config
from millpond.runtime.config.settings import settings
from millpond.runtime.config.sources import variable_for
from millpond.runtime.processing.handlers import continue_on_error, fail_on_error

GIVEN = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


def make(**more: object) -> Config:
    return Config.of(GIVEN | {key.replace("_", "."): value for key, value in more.items()})


def load(file: Path | None = None, environ: Mapping[str, str] | None = None, **flags: object) -> Config:
    return Config.load(file, environ or {}, {**GIVEN, **{key.replace("_", "."): value for key, value in flags.items()}})


def rejection_of(key: str, value: object) -> str:
    """The error for one setting given in code."""
    with pytest.raises(ConfigError) as refused:
        Config.of({**GIVEN, key: value})
    return str(refused.value)


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "millpond.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_later_sources_win(tmp_path: Path) -> None:
    """Flags beat the environment, the environment beats the file, the file beats the default."""
    file = toml(tmp_path, 'poll.ms = 1\ncommit.interval.ms = 1\nworker.id = "file"')
    environ = {"MILLPOND_COMMIT_INTERVAL_MS": "2", "MILLPOND_WORKER_ID": "env"}
    config = load(file, environ, worker_id="flag")
    assert (config.max_task_idle_ms, config.poll_ms, config.commit_interval_ms, config.worker_id) == (0, 1, 2, "flag")


def test_spellings_of_a_setting_are_one_setting(tmp_path: Path) -> None:
    """A flag with Kafka's name overrides the file's short one, and the other way round."""
    assert load(toml(tmp_path, 'commit.interval = "5s"'), commit_interval_ms=7).commit_interval_ms == 7
    assert load(toml(tmp_path, "commit.interval.ms = 7"), {"MILLPOND_COMMIT_INTERVAL": "5s"}).commit_interval_ms == 5000


def test_tables_and_dotted_keys_are_the_same(tmp_path: Path) -> None:
    """All of TOML's ways to write a key with dots give the same key."""
    ways = [
        '"consumer.fetch.min.bytes" = 5',
        "consumer.fetch.min.bytes = 5",
        "[consumer]\nfetch.min.bytes = 5",
        "[consumer.fetch.min]\nbytes = 5",
    ]
    assert {load(toml(tmp_path, text)).consumer["fetch.min.bytes"] for text in ways} == {5}


def test_every_setting_can_come_from_the_environment(tmp_path: Path) -> None:
    """Each setting's variable is read, with the default as text."""
    for one in settings():
        text = {
            "state.dir": "/tmp/x",
            "errors.dead.letter.queue.topic.name": "dead",
            "default.timestamp.extractor": "WallclockTimestampExtractor",
            "application.server": "http://10.0.0.7:8080",
            "coordinator.url": "http://127.0.0.1:7070/",
            "credentials.dir": str(tmp_path),
        }.get(one.key)
        text = text or ("String" if one.key.endswith("serde") else one.default.split(",")[0] or "x")
        config = load(environ={variable_for(one.key): text})
        assert one.key in config.origins, one.key
        assert "environment" in config.origins[one.key] or one.key in GIVEN


def test_variables_that_are_no_settings_are_ignored() -> None:
    """Empty variables, those of other programs, and those that Kubernetes sets for a service named millpond."""
    environ = {
        "MILLPOND_POLL_MS": "",
        "MILLPONDX": "1",
        "PATH": "/bin",
        "MILLPOND_CACHE": "/tmp",
        "MILLPOND_SERVICE_HOST": "10.0.0.1",
        "MILLPOND_SERVICE_PORT_HTTP": "80",
        "MILLPOND_PORT": "tcp://10.0.0.1:80",
        "MILLPOND_PORT_80_TCP_ADDR": "10.0.0.1",
        "MILLPOND_COORDINATOR_SERVICE_HOST": "10.0.0.2",
    }
    assert load(environ=environ) == load()


def test_http_port_is_a_setting_and_no_service_link() -> None:
    """It is the only setting whose variable looks like one that Kubernetes sets."""
    assert load(environ={"MILLPOND_HTTP_PORT": "8080"}).http_port == 8080


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        (250, 250),
        ("250", 250),
        ("250ms", 250),
        ("5s", 5_000),
        (" 1.5 s ", 1_500),
        ("+5s", 5_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        (timedelta(milliseconds=1.0, seconds=2), 2_001),
    ],
)
def test_durations_are_written_in_many_ways(written: object, ms: int) -> None:
    """Milliseconds as a number or text, texts with a unit, and timedeltas."""
    assert make(commit_interval_ms=written).commit_interval_ms == ms


@pytest.mark.parametrize("written", [-1, "-1", "-1ms", timedelta(milliseconds=-1)])
def test_minus_one_is_written_in_many_ways(written: object) -> None:
    """Where -1 has a meaning of its own, a unit does not take it away."""
    assert make(log_summary_interval_ms=written).log_summary_interval_ms == -1


@given(st.integers(0, 10**12))
def test_timedeltas_and_milliseconds_agree(ms: int) -> None:
    """A timedelta of n milliseconds is n, to the last one."""
    assert Config.of(GIVEN, commit_interval=timedelta(milliseconds=ms)).commit_interval_ms == ms


@pytest.mark.parametrize(
    "written", ["soon", "5 fortnights", "", "0.5ms", timedelta(microseconds=1), -1, True, None, [1], 1.5]
)
def test_invalid_duration_is_rejected(written: object) -> None:
    """No ambiguous value, and none that would lose a part, is accepted."""
    assert "commit.interval.ms" in rejection_of("commit.interval.ms", written)


def test_duration_without_a_unit_is_rejected() -> None:
    """`commit.interval = 100` is ambiguous, so the error has both correct forms."""
    message = rejection_of("commit.interval", 100)
    assert "'100ms'" in message
    assert "'commit.interval.ms'" in message


@pytest.mark.parametrize(
    ("written", "size"),
    [(10, 10), ("10", 10), ("1KiB", 1024), ("1k", 1024), ("2MB", 2_000_000), ("1.5MiB", 1_572_864), ("1 GiB", 2**30)],
)
def test_sizes_are_written_in_many_ways(written: object, size: int) -> None:
    """Bytes as a number, or a text with a unit of 1000 or 1024."""
    assert make(statestore_cache_max_bytes=written).statestore_cache_max_bytes == size


def test_the_commit_interval_follows_from_the_guarantee() -> None:
    """30 s with at least once, 100 ms with exactly once, and the given value in either."""
    assert make().commit_interval_ms == 30_000
    assert make(processing_guarantee="exactly_once").commit_interval_ms == 100
    assert make(processing_guarantee="exactly_once", commit_interval_ms=7).commit_interval_ms == 7


def test_kafka_streams_names_are_accepted() -> None:
    """An application that moves keeps `exactly_once_v2` and the older names of settings."""
    config = Config.of(
        {
            **GIVEN,
            "processing.guarantee": "exactly_once_v2",
            "cache.max.bytes.buffering": 5,
            "default.deserialization.exception.handler": "continue",
            "consumer.auto.offset.reset": "latest",
            "producer.transaction.timeout.ms": 20_000,
        }
    )
    assert config.exactly_once
    assert config.statestore_cache_max_bytes == 5
    assert config.deserialization_exception_handler is continue_on_error
    assert config.auto_offset_reset == "latest"
    assert config.transaction_timeout_ms == 20_000


def test_serdes_and_handlers_are_found_by_name_and_by_path() -> None:
    """Short names, import paths, and objects themselves."""
    config = make(
        default_key_serde="String",
        default_value_serde="millpond.serdes:Long",
        processing_exception_handler=continue_on_error,
    )
    assert config.default_key_serde is serdes.String
    assert config.default_value_serde is serdes.Long
    assert config.processing_exception_handler is continue_on_error
    assert config.production_exception_handler is fail_on_error


def test_a_java_class_leads_to_the_serde_of_that_name() -> None:
    """A value from a Java application's properties is rejected, with what to write here."""
    message = rejection_of("default.key.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde")
    assert "did you mean 'String'?" in message


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("comit.interval.ms", "commit.interval.ms"),
        ("processing.guarante", "processing.guarantee"),
        ("consumer.fetch.min.byte", "consumer.fetch.min.bytes"),
        ("producer.linger", "producer.linger.ms"),
        ("sasl.pasword", "sasl.password"),
        ("topic.segment.byte", "topic.segment.bytes"),
        ("max.task.idle", "max.task.idle.ms"),
        ("COMMIT.INTERVAL.MS", "commit.interval.ms"),
    ],
)
def test_a_misspelled_setting_is_named_with_the_nearest_right_one(key: str, near: str) -> None:
    """The message has both names, but not the value, which may be a password."""
    message = rejection_of(key, 4711)
    assert key in message
    assert f"'{near}'" in message
    assert "4711" not in message


def test_the_message_has_the_source_of_the_setting(tmp_path: Path) -> None:
    """File, variable, command line or argument."""
    file = toml(tmp_path, "pol.ms = 1")
    for build, where in (
        (lambda: load(file), str(file)),
        (lambda: load(environ={"MILLPOND_POL_MS": "1"}), "MILLPOND_POL_MS"),
        (lambda: load(pol_ms=1), "command line"),
        (lambda: Config.of(GIVEN, pol_ms=1), "pol_ms"),
    ):
        with pytest.raises(ConfigError, match=r"'pol\.ms'") as refused:
            build()
        assert where in str(refused.value)
        assert "poll.ms" in str(refused.value)


def test_settings_of_kafka_streams_without_a_meaning_here_say_why() -> None:
    """Whoever copies a Java application's settings learns what to do instead."""
    assert "start more workers" in rejection_of("num.stream.threads", 4)
    assert "rocksdb.block.cache.bytes" in rejection_of("rocksdb.config.setter", "X")
    assert "StreamsBuilder(processor_wrapper=…)" in rejection_of("processor.wrapper.class", "X")
    assert "the coordinator assigns tasks" in rejection_of("task.assignor.class", "X")


@pytest.mark.parametrize("text", ["application.id = ", 'sasl.password = "hunter2', "a = 1\na = 2", "\x00"])
def test_broken_file_error_names_the_place_not_the_text(tmp_path: Path, text: str) -> None:
    """Line and column are enough to find a mistake; the text may be a secret."""
    with pytest.raises(ConfigError, match=r"is not valid TOML: .*\(at ") as refused:
        load(toml(tmp_path, text))
    assert "hunter2" not in str(refused.value)


def test_a_file_of_windows_may_begin_with_a_mark(tmp_path: Path) -> None:
    """Editors there write UTF-8's byte order mark."""
    assert load(toml(tmp_path, "\ufeffcommit.interval.ms = 7")).commit_interval_ms == 7


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("http://127.0.0.1:9092", "without 'http://'; did you mean '127.0.0.1:9092'?"),
        ("https://kafka.example.com/", "without 'https://'; did you mean 'kafka.example.com:9092'?"),
        ("kafka:9092/", "host:port,host:port; did you mean 'kafka:9092'?"),
        ("a:9092,kafka:port", "did you mean 'kafka:9092'?"),
        ("user:pw@kafka:9093", "did you mean 'kafka:9093'?"),
        ("SASL_SSL://kafka:9092", "set 'security.protocol' to SASL_SSL, or remove SASL_SSL://."),
    ],
)
def test_addresses_that_no_client_takes_are_refused(servers: str, said: str) -> None:
    """The clients only log them, and then waits for ever for a broker."""
    with pytest.raises(ConfigError) as refused:
        Config.of(GIVEN | {"bootstrap.servers": servers})
    assert str(refused.value).endswith(said)


def test_a_protocol_is_compared_where_a_broker_is_used() -> None:
    """`millpond check` may not have the credentials, which can choose the protocol."""
    given = {"application.id": "x", "bootstrap.servers": "SASL_SSL://kafka:9092"}
    assert Config.of(given, required=()).bootstrap_servers == "SASL_SSL://kafka:9092"


@pytest.mark.parametrize(
    "servers", ["kafka:9092", "a:1, b:2,", "[::1]:9092", "::1", "my_host.svc", "PLAINTEXT://kafka:9092", "ssl://kafka"]
)
def test_addresses_that_clients_take_are_accepted(servers: str) -> None:
    """Also with the protocol that the clients use."""
    more = {"security.protocol": "SSL"} if servers.startswith("ssl") else {}
    assert Config.of(GIVEN | more | {"bootstrap.servers": servers}).bootstrap_servers == servers


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    """A file that was named must exist: nothing runs with defaults by accident."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "gone.toml")


def test_missing_setting_names_the_ways_to_give_it() -> None:
    """Without an application id nothing starts; the message has the flag and the variable."""
    with pytest.raises(ConfigError, match=r"MILLPOND_APPLICATION_ID.*--application-id"):
        Config.load(None, {}, {})
    assert Config.of(required=()).application_id == ""


@pytest.mark.parametrize("name", ["", "a b", "ü", "a/b", "..", "x" * 250])
def test_names_that_kafka_rejects_are_rejected(name: str) -> None:
    """Topic names and transactional ids begin with application and worker ids."""
    assert "application.id" in rejection_of("application.id", name)
    assert "worker.id" in rejection_of("worker.id", name)


def test_a_transaction_lasts_at_least_a_commit_interval() -> None:
    """The broker would abort every transaction, so the contradiction is found before anything runs."""
    with pytest.raises(ConfigError, match="shorter than"):
        make(processing_guarantee="exactly_once", transaction_timeout_ms=1_000, commit_interval_ms=2_000)
    assert make(transaction_timeout_ms=1_000, commit_interval_ms=2_000).commit_interval_ms == 2_000


def test_configuration_is_immutable() -> None:
    """Tasks and threads share it, so neither it nor its mappings can be changed."""
    config = make()
    with pytest.raises(AttributeError):
        config.poll_ms = 5  # type: ignore[misc]
    for mapping in (config.consumer, config.app, config.as_mapping()):
        with pytest.raises(TypeError):
            mapping["x"] = 1  # type: ignore[index]


def test_applications_keep_their_own_settings_under_app() -> None:
    """Any key that begins with `app.` is accepted, and processors can read it."""
    config = Config.of({**GIVEN, "app.threshold": 5, "app.api.token": "hunter2"})
    assert config.as_mapping()["app.threshold"] == 5
    assert "hunter2" not in str(config.as_mapping())


def test_state_directory_defaults_below_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The home directory survives a restart. Each application and worker has its own subdirectory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert make().directory == tmp_path / "millpond" / "app" / "w0"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert make().state_dir == tmp_path / "home" / ".local" / "state" / "millpond"
    assert make(state_dir="~/s").state_dir == tmp_path / "home" / "s"
