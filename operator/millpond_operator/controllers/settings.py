"""The operator's settings: each a flag and an environment variable of the same name.

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

from millpond.durations import Duration
from millpond.errors import ConfigError

__all__ = ("PREFIX", "Settings", "settings_options")

PREFIX = "MILLPOND_OPERATOR_"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
#: What Kubernetes puts into the environment about services whose names begin like the prefix.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT\w*)$|_PORT_\d+_(TCP|UDP)\w*$|^MILLPOND_OPERATOR_PORT$")


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"text": text})


@dataclass(frozen=True)
class Settings:
    """What the operator can be told. Durations are written `500ms`, `15s`, `5m`, `1h`."""

    namespace: str = _setting("", "The operator's own; by default that of its pod, or of the kubeconfig.")
    pod_name: str = _setting("", "Of the operator's pod; by default the name of the host.")
    pod_ip: str = _setting("", "The address of the operator's pod, where workers reach its coordinator while it leads.")
    watch_namespaces: tuple[str, ...] = _setting((), "Where StreamApps are served, separated by commas; empty for all.")
    coordinator_host: str = _setting(
        "", "Name of the coordinator's Service; by default millpond-coordinator.<namespace>.svc."
    )
    coordinator_port: int = _setting(7070, "Where the coordinator listens.")
    coordinator_service_port: int = _setting(7070, "Port of the coordinator's Service, which workers are told.")
    coordinator_connections: int = _setting(
        4_000, "How many connections the coordinator takes; each worker has one or two, of 60 KiB each."
    )
    http_host: str = _setting("", "Where /healthz, /readyz and /metrics are served; by default everywhere.")
    http_port: int = _setting(8081, "And at which port.")
    resync_interval: timedelta = _setting(timedelta(minutes=5), "How often everything is listed, whatever watches say.")
    upkeep_interval: timedelta = _setting(
        timedelta(seconds=15), "How often the leader's EndpointSlice and certificate are looked after."
    )
    trust_delay: timedelta = _setting(
        timedelta(minutes=3), "How long workers need to get another authority that the coordinator is to use."
    )
    watch_patience: timedelta = _setting(
        timedelta(seconds=60), "How late a watch may deliver what a list showed, before it counts as dead."
    )
    lease_name: str = _setting("millpond-operator", "Of the Lease by which operators elect their leader.")
    lease_duration: timedelta = _setting(timedelta(seconds=15), "After so long without renewal the Lease is anybody's.")
    lease_renew_deadline: timedelta = _setting(timedelta(seconds=10), "A leader that cannot renew for so long stops.")
    lease_retry_period: timedelta = _setting(timedelta(seconds=2), "How often the Lease is renewed, or tried for.")
    concurrency: int = _setting(8, "How many StreamApps are reconciled at once.")
    upgrade_budget: int = _setting(
        1,
        "How many StreamApps at a time restart their workers because a new version of the operator makes pods differently.",
    )
    longest_reconcile: timedelta = _setting(
        timedelta(minutes=5), "A reconciliation that takes longer makes /healthz fail."
    )
    request_timeout: timedelta = _setting(timedelta(seconds=10), "For one request to the API server.")
    kubeconfig: str = _setting("", "File to reach the API server by; by default $KUBECONFIG, or the pod's own account.")
    log_level: str = _setting("INFO", "DEBUG, INFO, WARNING or ERROR.")

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
                raise ConfigError(f"{_flag(each.name)} must be longer than nothing.")
        if not self.lease_retry_period < self.lease_renew_deadline < self.lease_duration:
            raise ConfigError(
                "--lease-retry-period must be shorter than --lease-renew-deadline, and that shorter than "
                "--lease-duration: for example 2s, 10s and 15s."
            )
        if self.lease_duration < timedelta(seconds=1):
            raise ConfigError("--lease-duration must be 1s or more: the API server counts in seconds.")
        if self.log_level.upper() not in _LEVELS:
            raise ConfigError(f"--log-level is '{self.log_level}': use one of {', '.join(_LEVELS)}.")

    def within(self, namespace: str) -> Settings:
        """With everything filled in that depends on where the operator is.

        Args:
            namespace: the operator's, unless the settings say another.
        """
        own = self.namespace or namespace
        return dataclasses.replace(
            self,
            namespace=own,
            pod_name=self.pod_name or socket.gethostname(),
            coordinator_host=self.coordinator_host or f"millpond-coordinator.{own}.svc",
        )

    @staticmethod
    def read(given: Mapping[str, str | None] | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
        """From flags and the environment.

        Args:
            given: values of flags by the names of the settings; None for a flag that was not given.
            environ: environment variables; those without the operator's prefix say nothing.

        Raises:
            ConfigError: there is no such setting, or a value cannot be used.
        """
        fields = {each.name: each for each in dataclasses.fields(Settings)}
        values: dict[str, Any] = {}
        for variable, text in environ.items():
            name = variable.removeprefix(PREFIX).lower()
            if not variable.startswith(PREFIX) or _SERVICE_LINK.search(variable):
                continue
            if name not in fields:
                near = difflib.get_close_matches(name, fields, n=1)
                cure = f"did you mean {PREFIX}{near[0].upper()}?" if near else "unset it."
                raise ConfigError(f"The environment variable {variable} is no setting of the operator: {cure}")
            values[name] = _parsed(fields[name], text, variable)
        for name, value in (given or {}).items():
            if value is not None:
                values[name] = _parsed(fields[name], value, _flag(name))
        return Settings(**values)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command a flag for each setting; it is called with `settings` in their place."""

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
            raise ConfigError(f"{source} is '{text}', which is no duration: write 500ms, 15s, 5m or 1h.") from None
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError as error:
            raise ConfigError(f"{source} is '{text}', which is no whole number.") from error
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _written(value: Any) -> str:
    if isinstance(value, timedelta):
        return str(Duration.of(value))
    return str(value or "")
