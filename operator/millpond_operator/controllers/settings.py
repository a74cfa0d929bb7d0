"""The operator's settings. Each is a flag and an environment variable of the same name.

`--resync-interval 5m` is `MILLPOND_OPERATOR_RESYNC_INTERVAL=5m`; a flag wins.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import click
import msgspec

from millpond.durations import Duration
from millpond.errors import ConfigError
from millpond.json_logs import FORMATS
from millpond_operator.resources import Requirements
from millpond_operator.resources.diff import amount

__all__ = ("PREFIX", "Settings", "settings_options")


class _Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Resources, in which a misspelled name is an error."""

    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}


PREFIX = "MILLPOND_OPERATOR_"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_CHOICES = {
    "certificate_source": ("managed", "secret"),
    "token_verification": ("review", "keys"),
    "log_format": FORMATS,
}
#: Variables that Kubernetes sets for a Service if its name begins like the prefix.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT\w*)$|_PORT_\d+_(TCP|UDP)\w*$|^MILLPOND_OPERATOR_PORT$")


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"text": text})


@dataclass(frozen=True)
class Settings:
    """The operator's settings. Durations are written `500ms`, `15s`, `5m`, `1h`."""

    namespace: str = _setting("", "The operator's namespace; by default that of its pod or of the kubeconfig.")
    pod_name: str = _setting("", "The name of the operator's pod; by default the host name.")
    pod_ip: str = _setting("", "The IP address of the operator's pod; workers reach the coordinator there.")
    watch_namespaces: tuple[str, ...] = _setting((), "Namespaces to watch, separated by commas; empty for all.")
    coordinator_service: str = _setting(
        "millpond-coordinator", "Name of the coordinator's Service and of its EndpointSlice, which the leader writes."
    )
    console_service: str = _setting(
        "millpond-console", "Name of the console's Service and of its EndpointSlice, which the leader writes."
    )
    coordinator_host: str = _setting(
        "", "Host name of the coordinator's Service; by default <coordinator-service>.<namespace>.svc."
    )
    coordinator_port: int = _setting(7070, "Port that the coordinator listens on.")
    coordinator_service_port: int = _setting(7070, "Port of the coordinator's Service, which workers connect to.")
    coordinator_connections: int = _setting(
        4_000, "Limit of connections to the coordinator; each worker has one or two, of 60 KiB each."
    )
    http_host: str = _setting("", "Address that serves health, metrics and the console; by default all addresses.")
    http_port: int = _setting(
        8081, "Port that serves /healthz, /readyz, /metrics, and /console and /api of the console."
    )
    resync_interval: timedelta = _setting(timedelta(minutes=5), "How often all objects are listed, beside the watches.")
    upkeep_interval: timedelta = _setting(
        timedelta(seconds=15), "How often the leader checks its EndpointSlice and the coordinator's certificate."
    )
    trust_delay: timedelta = _setting(
        timedelta(minutes=3), "How long workers may need to load a new certificate authority before it is used."
    )
    watch_patience: timedelta = _setting(
        timedelta(seconds=60), "How late a watch may deliver a change that a list showed, before it is restarted."
    )
    certificate_secret: str = _setting(
        "millpond-coordinator-tls", "Name of the Secret with the coordinator's certificate."
    )
    certificate_source: str = _setting(
        "managed",
        "managed: the operator creates and renews the certificate. secret: it only reads tls.crt, tls.key and ca.crt.",
    )
    token_verification: str = _setting(
        "review",
        "How tokens of workers are verified. review: TokenReviews, a cluster-wide right. keys: the API server's keys.",
    )
    snapshot_driver_role: str = _setting(
        "millpond-snapshot-driver",
        "ClusterRole of snapshots with executors; Role/NAME for a Role of that name in each namespace.",
    )
    default_worker_resources: str = _setting(
        "", """Resources of workers whose StreamApp names none, as JSON: {"requests": {"memory": "512Mi"}}."""
    )
    allowed_mounts: tuple[str, ...] = _setting(
        (),
        "Secrets and ConfigMaps that StreamApps may use: names or patterns such as team-*; empty for all, - for none.",
    )
    allowed_tolerations: tuple[str, ...] = _setting(
        (), "Keys of taints that StreamApps may tolerate: keys or patterns; empty for all, - for none."
    )
    allowed_priority_classes: tuple[str, ...] = _setting(
        (), "Priority classes that StreamApps may use: names or patterns; empty for all, - for none."
    )
    lease_name: str = _setting("millpond-operator", "Name of the Lease for leader election.")
    lease_duration: timedelta = _setting(
        timedelta(seconds=15), "How long after its last renewal another operator may take the Lease."
    )
    lease_renew_deadline: timedelta = _setting(
        timedelta(seconds=10), "How long a leader that cannot renew the Lease continues before it stops."
    )
    lease_retry_period: timedelta = _setting(
        timedelta(seconds=2), "How often the Lease is renewed by the leader, or tried for by the others."
    )
    concurrency: int = _setting(8, "How many StreamApps are reconciled concurrently.")
    upgrade_budget: int = _setting(
        1,
        "How many StreamApps restart their workers at a time after an upgrade of the operator that changes their pods.",
    )
    longest_reconcile: timedelta = _setting(timedelta(minutes=5), "/healthz fails when one reconcile takes longer.")
    request_timeout: timedelta = _setting(timedelta(seconds=10), "Timeout of a request to the API server.")
    kubeconfig: str = _setting("", "Kubeconfig file; by default $KUBECONFIG, or the pod's service account.")
    log_level: str = _setting("INFO", "Log level: DEBUG, INFO, WARNING or ERROR.")
    log_format: str = _setting("text", "Format of logs: text, or json with one line of JSON for each log record.")

    def __post_init__(self) -> None:
        for name, low in (
            ("coordinator_port", 0),
            ("coordinator_service_port", 1),
            ("coordinator_connections", 1),
            ("http_port", 0),
            ("concurrency", 1),
            ("upgrade_budget", 1),
        ):
            if getattr(self, name) < low:
                raise ConfigError(f"{_flag(name)} is {getattr(self, name)}: it must be {low} or more.")
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if isinstance(value, timedelta) and value <= timedelta(0):
                raise ConfigError(f"{_flag(each.name)} is 0s or less: it must be longer, for example 1s.")
        if not self.lease_retry_period < self.lease_renew_deadline < self.lease_duration:
            raise ConfigError(
                "--lease-retry-period must be shorter than --lease-renew-deadline, which must be shorter than "
                "--lease-duration: set, for example, 2s, 10s and 15s."
            )
        if self.lease_duration < timedelta(seconds=1):
            raise ConfigError(
                "--lease-duration is shorter than 1s: set 1s or more, since the API server counts in seconds."
            )
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{_flag(name)} is '{getattr(self, name)}': use {' or '.join(allowed)}.")
        _requirements(self.default_worker_resources)
        if self.log_level.upper() not in _LEVELS:
            raise ConfigError(f"--log-level is '{self.log_level}': use one of {', '.join(_LEVELS)}.")

    def within(self, namespace: str) -> Settings:
        """Return the settings with defaults filled in that depend on where the operator runs.

        Args:
            namespace: the operator's namespace unless the settings name another.
        """
        own = self.namespace or namespace
        return dataclasses.replace(
            self,
            namespace=own,
            pod_name=self.pod_name or socket.gethostname(),
            coordinator_host=self.coordinator_host or f"{self.coordinator_service}.{own}.svc",
        )

    @property
    def worker_resources(self) -> Requirements:
        """The resources of workers whose StreamApp names none."""
        return _requirements(self.default_worker_resources)

    @property
    def verifies_by_keys(self) -> bool:
        """Whether tokens of workers are verified by the API server's keys."""
        return self.token_verification == "keys"  # noqa: S105 - no password

    @property
    def manages_certificate(self) -> bool:
        """Whether the operator creates and renews the coordinator's certificate."""
        return self.certificate_source == "managed"

    @staticmethod
    def read(given: Mapping[str, str | None] | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings from flags and environment variables; flags win.

        Args:
            given: flag values by setting name; None for a flag that was not given.
            environ: environment variables; those without the operator's prefix are ignored.

        Raises:
            ConfigError: a variable names no setting, or a value is invalid.
        """
        fields = {each.name: each for each in dataclasses.fields(Settings)}
        values: dict[str, Any] = {}
        for variable, text in environ.items():
            name = variable.removeprefix(PREFIX).lower()
            if not variable.startswith(PREFIX) or (name not in fields and _SERVICE_LINK.search(variable)):
                continue
            if name not in fields:
                near = difflib.get_close_matches(name, fields, n=1)
                cure = f"did you mean {PREFIX}{near[0].upper()}?" if near else "unset it."
                raise ConfigError(f"The environment variable {variable} names no setting of the operator: {cure}")
            values[name] = _parsed(fields[name], text, variable)
        for name, value in (given or {}).items():
            if value is not None:
                values[name] = _parsed(fields[name], value, _flag(name))
        return Settings(**values)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command a flag for each setting; the command gets them as one argument, `settings`."""

    @functools.wraps(command)
    def with_settings(*args: Any, **kwargs: Any) -> Any:
        given = {each.name: kwargs.pop(each.name) for each in dataclasses.fields(Settings)}
        return command(*args, settings=Settings.read(given), **kwargs)

    for each in reversed(dataclasses.fields(Settings)):
        shown = _written(each.default)
        text = each.metadata["text"] + (f" [default: {shown}]" if shown else "")
        with_settings = click.option(_flag(each.name), each.name, metavar="VALUE", help=text)(with_settings)
    return with_settings


def _parsed(field_: dataclasses.Field[Any], text: str, source: str) -> Any:
    text = text.strip()
    default = field_.default
    if isinstance(default, timedelta):
        try:
            return Duration.parse(text)
        except ValueError:
            raise ConfigError(f"{source} is '{text}', which is not a duration: write 500ms, 15s, 5m or 1h.") from None
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError as error:
            raise ConfigError(f"{source} is '{text}', which is not a whole number: write, for example, 8.") from error
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _requirements(text: str) -> Requirements:
    """Return resources from JSON.

    Raises:
        ConfigError: the text is not JSON of resources.
    """
    try:
        found = msgspec.json.decode(text or "{}", type=_Resources)
        for quantities in (found.requests, found.limits):
            for quantity in quantities.values():
                amount(quantity)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(
            f"--default-worker-resources cannot be used ({error}): write JSON with requests and limits, for example "
            """{"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}."""
        ) from error
    return Requirements(requests=dict(found.requests), limits=dict(found.limits))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _written(value: Any) -> str:
    if isinstance(value, timedelta):
        return str(Duration.of(value))
    return str(value or "")
