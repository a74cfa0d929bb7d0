"""The operator's settings: flags, environment variables, and invalid values."""

from __future__ import annotations

from datetime import timedelta

import click
import pytest
from click.testing import CliRunner

from millpond.errors import ConfigError
from millpond_operator.controllers.settings import Settings, settings_options


def read(**environ: str) -> Settings:
    return Settings.read(environ={f"MILLPOND_OPERATOR_{name}": value for name, value in environ.items()})


def test_everything_has_a_default() -> None:
    """An empty environment is valid."""
    settings = Settings.read(environ={"PATH": "/bin"})
    assert settings == Settings()
    assert settings.within("operators").coordinator_host == "millpond-coordinator.operators.svc"
    assert settings.within("operators").namespace == "operators"
    assert settings.within("operators").pod_name


def test_the_environment_and_flags_say_the_same() -> None:
    """Each setting has a variable and a flag; the flag wins."""
    settings = read(WATCH_NAMESPACES="a, b,", RESYNC_INTERVAL="90s", HTTP_PORT="9", NAMESPACE="own")
    assert settings.watch_namespaces == ("a", "b")
    assert settings.resync_interval == timedelta(seconds=90)
    assert settings.http_port == 9
    assert settings.within("pods").namespace == "own"
    environ = {"MILLPOND_OPERATOR_HTTP_PORT": "9", "MILLPOND_OPERATOR_CONCURRENCY": "3"}
    settings = Settings.read({"http_port": "10", "concurrency": None}, environ)
    assert (settings.http_port, settings.concurrency) == (10, 3)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("1.5s", timedelta(seconds=1.5)),
        ("5m", timedelta(minutes=5)),
        ("1h", timedelta(hours=1)),
    ],
)
def test_durations_have_units(text: str, duration: timedelta) -> None:
    """Milliseconds, seconds, minutes and hours."""
    assert read(RESYNC_INTERVAL=text).resync_interval == duration


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RESYNC_INTERVAL", "5", "MILLPOND_OPERATOR_RESYNC_INTERVAL is '5', which is not a duration: write 500ms"),
        ("RESYNC_INTERVAL", "0s", "--resync-interval is 0s or less: it must be longer"),
        ("HTTP_PORT", "many", "is 'many', which is not a whole number"),
        ("CONCURRENCY", "0", "--concurrency is 0: it must be 1 or more"),
        ("LEASE_DURATION", "5s", "--lease-retry-period must be shorter than --lease-renew-deadline"),
        ("CERTIFICATE_SOURCE", "vault", "--certificate-source is 'vault': use managed or secret."),
        ("TOKEN_VERIFICATION", "none", "--token-verification is 'none': use review or keys."),
        ("DEFAULT_WORKER_RESOURCES", "1Gi", "--default-worker-resources cannot be used ("),
        ("DEFAULT_WORKER_RESOURCES", '{"request": {}}', "unknown field `request`"),
        ("DEFAULT_WORKER_RESOURCES", '{"limits": {"memory": "1 GB"}}', "'1 GB' is not a quantity"),
        ("LOG_LEVEL", "loud", "--log-level is 'loud': use one of DEBUG"),
        ("RESYNC_INTERVALL", "5m", "did you mean MILLPOND_OPERATOR_RESYNC_INTERVAL?"),
        ("SOMETHING_ELSE", "5m", "names no setting of the operator"),
    ],
)
def test_unusable_settings_are_explained(name: str, value: str, message: str) -> None:
    """The message names the setting and the cure."""
    with pytest.raises(ConfigError) as caught:
        read(**{name: value})
    assert message in str(caught.value)


def test_service_links_are_no_settings() -> None:
    """Variables of Kubernetes about a Service with the operator's name are ignored."""
    assert read(SERVICE_HOST="10.0.0.1", PORT="tcp://10.0.0.1:8081", PORT_8081_TCP_ADDR="10.0.0.1") == Settings()


def test_setting_that_looks_like_a_service_link_is_read() -> None:
    """Kubernetes sets variables with the same ending for Services."""
    assert read(COORDINATOR_SERVICE_PORT="7071").coordinator_service_port == 7071


def test_resources_of_workers_are_json() -> None:
    """As in a pod."""
    found = read(DEFAULT_WORKER_RESOURCES='{"requests": {"cpu": 1, "memory": "1Gi"}}').worker_resources
    assert (found.requests, found.limits) == ({"cpu": 1, "memory": "1Gi"}, {})
    assert not read().worker_resources.requests


def test_host_of_the_coordinator_follows_its_service() -> None:
    """Names follow the release."""
    assert read(COORDINATOR_SERVICE="blue").within("pond").coordinator_host == "blue.pond.svc"
    assert read(COORDINATOR_SERVICE="blue", COORDINATOR_HOST="x.y").within("pond").coordinator_host == "x.y"


def test_commands_accept_their_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """The help names every flag and its default; given values arrive as settings."""
    monkeypatch.delenv("MILLPOND_OPERATOR_LOG_LEVEL", raising=False)
    seen: list[Settings] = []

    @click.command()
    @settings_options
    def command(settings: Settings) -> None:
        """Run."""
        seen.append(settings)

    shown = CliRunner().invoke(command, ["--help"]).output
    assert "--lease-renew-deadline" in shown
    assert "[default: 10s]" in " ".join(shown.split())
    assert CliRunner().invoke(command, ["--resync-interval", "1m", "--log-level", "debug"]).exit_code == 0
    assert (seen[0].resync_interval, seen[0].log_level) == (timedelta(minutes=1), "debug")
