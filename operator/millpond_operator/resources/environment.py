"""The environment of a worker: the fields of a StreamApp as millpond's settings."""

from __future__ import annotations

import json
from datetime import timedelta

from millpond.durations import Duration

from .names import REVISION, Object, Surroundings
from .spec import EnvSource, EnvVariable, KeyReference
from .streamapp import InvalidStreamApp, StreamApp

__all__ = (
    "BOOTSTRAP_DIRECTORY",
    "COORDINATOR_DIRECTORY",
    "CREDENTIALS_DIRECTORY",
    "HTTP_PORT",
    "QUERY_PORT",
    "STATE_DIRECTORY",
    "check_environment",
    "cleanup_environment",
    "worker_environment",
)

HTTP_PORT = 8080
"""Port of metrics and health."""
QUERY_PORT = 8081
"""Port of queries, of clients and of other workers."""
STATE_DIRECTORY = "/var/lib/millpond"
COORDINATOR_DIRECTORY = "/var/run/millpond"
CREDENTIALS_DIRECTORY = "/etc/millpond/credentials"
BOOTSTRAP_DIRECTORY = "/etc/millpond/bootstrap"
"""Directory of the credentials of the snapshots' location."""

_CLIENT_VARIABLES = frozenset(
    f"MILLPOND_{name}"
    for name in (
        "APPLICATION_ID",
        "BOOTSTRAP_SERVERS",
        "COMMIT_INTERVAL",
        "CONFIG_INLINE",
        "CREDENTIALS_DIR",
        "PROCESSING_GUARANTEE",
        "STATE_DIR",
        "TERMINATION_LOG",
    )
)
"""Variables of every pod that uses the application's Kafka; the others are for workers only."""

_CERTIFICATE = "query.ssl.certificate.location"

_SHUTDOWN_RESERVE = timedelta(seconds=10)
"""Part of the grace period that is not for the last commit."""

_MAX_VARIABLE, _MAX_ENVIRONMENT = 128 * 1024 - 1, 1024 * 1024
"""Bytes of one variable, and of all. Linux starts no process with more."""


def worker_environment(app: StreamApp, surroundings: Surroundings) -> list[Object]:
    """Return all variables of a worker; those that others refer to come first."""
    grace = timedelta(seconds=app.spec.pod.termination_grace_period_seconds)
    service = f"{app.name}.{app.namespace}.svc"
    scheme = "https" if _CERTIFICATE in (app.spec.config or {}) else "http"
    return [
        {"name": "MILLPOND_WORKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "MILLPOND_REVISION", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{REVISION}']"}}},
        *_client_variables(app),
        _variable("MILLPOND_HTTP_HOST", "0.0.0.0"),  # noqa: S104 - a pod's address is not known in advance
        _variable("MILLPOND_HTTP_PORT", str(HTTP_PORT)),
        _variable("MILLPOND_QUERY_PORT", str(QUERY_PORT)),
        {"name": "MILLPOND_APPLICATION_SERVER", "value": f"{scheme}://$(MILLPOND_WORKER_ID).{service}:{QUERY_PORT}"},
        _variable(
            "MILLPOND_COORDINATOR_URL", f"{surroundings.coordinator_url_base}/namespaces/{app.namespace}/{app.name}"
        ),
        _variable("MILLPOND_COORDINATOR_TOKEN_FILE", f"{COORDINATOR_DIRECTORY}/token"),
        _variable("MILLPOND_COORDINATOR_CA_FILE", f"{COORDINATOR_DIRECTORY}/ca.crt"),
        _variable("MILLPOND_COORDINATOR_SESSION_TIMEOUT", str(app.spec.session_timeout)),
        _variable("MILLPOND_SHUTDOWN_TIMEOUT", str(Duration.of(max(grace - _SHUTDOWN_RESERVE, grace / 2)))),
        *_bootstrap_variables(app),
        *_user_variables(app),
    ]


def check_environment(app: StreamApp, template: Object) -> None:
    """Check that a process can start with the environment of a pod template.

    Raises:
        InvalidStreamApp: it is too large, so that execve would fail with E2BIG.
    """
    total = 0
    for container in template["spec"]["containers"]:
        for each in container["env"]:
            size = len(f"{each['name']}={each.get('value', '').replace('$$', '$')}".encode())
            total += size
            if size > _MAX_VARIABLE or total > _MAX_ENVIRONMENT:
                raise InvalidStreamApp(
                    f"StreamApp '{app.namespace}/{app.name}' has an environment that is too large for a process: "
                    f"{each['name']} has {size} bytes (at most {_MAX_VARIABLE}), and all variables up to it have "
                    f"{total} (at most {_MAX_ENVIRONMENT}). Put long values of spec.config and spec.env into a "
                    "ConfigMap or Secret that spec.pod.mounts names."
                )


def cleanup_environment(worker: list[Object]) -> list[Object]:
    """Return those of a worker's variables that a pod needs to use the application's Kafka without being a worker."""
    return [each for each in worker if not each["name"].startswith("MILLPOND_") or each["name"] in _CLIENT_VARIABLES]


def _client_variables(app: StreamApp) -> list[Object]:
    spec = app.spec
    variables = [
        _variable("MILLPOND_APPLICATION_ID", app.application_id),
        _variable("MILLPOND_BOOTSTRAP_SERVERS", spec.kafka.bootstrap_servers),
        _variable("MILLPOND_PROCESSING_GUARANTEE", spec.processing_guarantee),
        _variable("MILLPOND_STATE_DIR", STATE_DIRECTORY),
        _variable("MILLPOND_TERMINATION_LOG", "/dev/termination-log"),
    ]
    if spec.commit_interval is not None:
        variables.append(_variable("MILLPOND_COMMIT_INTERVAL", str(spec.commit_interval)))
    if spec.kafka.credentials_secret is not None:
        variables.append(_variable("MILLPOND_CREDENTIALS_DIR", CREDENTIALS_DIRECTORY))
    if spec.config:
        inline = json.dumps(spec.config, sort_keys=True, ensure_ascii=False)
        variables.append(_variable("MILLPOND_CONFIG_INLINE", inline))
    return variables


def _bootstrap_variables(app: StreamApp) -> list[Object]:
    bootstrap = app.spec.bootstrap
    if bootstrap is None:
        return []
    variables = [_variable("MILLPOND_BOOTSTRAP_LOCATION", bootstrap.location)]
    if bootstrap.credentials_secret is not None:
        variables.append(_variable("MILLPOND_BOOTSTRAP_CREDENTIALS_DIR", BOOTSTRAP_DIRECTORY))
    return variables


def _variable(name: str, value: str) -> Object:
    """Return a variable with a literal value: Kubernetes would replace ``$(NAME)`` and shorten ``$$``."""
    return {"name": name, "value": value.replace("$", "$$")}


def _user_variables(app: StreamApp) -> list[Object]:
    """Return the user's variables, in which Kubernetes replaces ``$(NAME)``."""
    return [_user_variable(each) for each in app.spec.env]


def _user_variable(variable: EnvVariable) -> Object:
    if variable.value_from is not None:
        return {"name": variable.name, "valueFrom": _source(variable.value_from)}
    # The API server removes an empty value.
    return {"name": variable.name} | ({"value": variable.value} if variable.value else {})


def _source(source: EnvSource) -> Object:
    found = {"secretKeyRef": source.secret_key_ref, "configMapKeyRef": source.config_map_key_ref}
    return {kind: _reference(reference) for kind, reference in found.items() if reference is not None}


def _reference(reference: KeyReference) -> Object:
    made: Object = {"name": reference.name, "key": reference.key}
    if reference.optional is not None:
        made["optional"] = reference.optional
    return made
