"""The specification of a StreamApp as types: the fields of `crds/streamapps.yaml`, with the same defaults.

Unknown fields are ignored: during an upgrade the operator may be older than the CRD.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import msgspec

from millpond.durations import Duration
from millpond.errors import MillpondError

__all__ = (
    "Autoscaling",
    "Bootstrap",
    "Deletion",
    "EnvSource",
    "EnvVariable",
    "Kafka",
    "KeyReference",
    "Mount",
    "Name",
    "Pod",
    "Quantity",
    "Requirements",
    "RetentionPolicy",
    "Rollout",
    "Spark",
    "State",
    "StateBootstrapSpec",
    "StreamAppSpec",
    "Toleration",
    "TopologySpread",
    "read_spec",
)

Quantity = int | str
"""A quantity, as in Kubernetes: ``1``, ``500m``, ``20Gi``."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


S = TypeVar("S", bound=msgspec.Struct)


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the specification."""


class Name(_Part, frozen=True):
    """An object in the same namespace."""

    name: str


class Kafka(_Part, frozen=True):
    """The connection of workers to Kafka."""

    bootstrap_servers: str
    credentials_secret: str | None = None


class KeyReference(_Part, frozen=True):
    """A key of a Secret or a ConfigMap."""

    name: str
    key: str
    optional: bool | None = None


class EnvSource(_Part, frozen=True):
    """The source of the value of a variable."""

    secret_key_ref: KeyReference | None = None
    config_map_key_ref: KeyReference | None = None


class EnvVariable(_Part, frozen=True):
    """A variable of the workers' environment."""

    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class RetentionPolicy(_Part, frozen=True):
    """The policies for the volumes of removed workers."""

    when_deleted: Literal["Delete", "Retain"] = "Delete"
    when_scaled: Literal["Delete", "Retain"] = "Delete"


class State(_Part, frozen=True):
    """A worker's local state."""

    size: Quantity = "1Gi"
    storage_class_name: str | None = None
    ephemeral: bool = False
    retention_policy: RetentionPolicy = RetentionPolicy()


class Requirements(_Part, frozen=True):
    """Computing resources of a worker."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Toleration(_Part, frozen=True, omit_defaults=True):
    """A taint that workers tolerate."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpread(_Part, frozen=True):
    """One rule for the spread of workers."""

    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"


class Mount(_Part, frozen=True):
    """Files from a Secret or a ConfigMap."""

    name: str
    path: str
    secret: str | None = None
    config_map: str | None = None


class Pod(_Part, frozen=True):
    """The fields of the workers' pods that users may set; the operator sets all others."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str | None = None
    topology_spread_constraints: tuple[TopologySpread, ...] = ()
    termination_grace_period_seconds: int = 60
    mounts: tuple[Mount, ...] = ()


class Rollout(_Part, frozen=True):
    """The settings of rollouts."""

    strategy: Literal["Rolling", "Recreate"] = "Rolling"
    progress_deadline: Duration = Duration(minutes=5)
    min_ready: Duration = Duration(seconds=10)
    auto_rollback: bool = True


class Autoscaling(_Part, frozen=True):
    """How the operator chooses the number of workers."""

    max_replicas: int
    mode: Literal["Auto", "Recommend"] = "Auto"
    min_replicas: int = 1
    target_lag: Duration = Duration(seconds=30)
    target_utilization: float = 0.7
    stabilization: Duration = Duration(minutes=5)
    rescales_per_day: int = 4


class Deletion(_Part, frozen=True):
    """The policy for data in Kafka when the StreamApp is deleted."""

    kafka: Literal["Retain", "Delete"] = "Retain"


class Spark(_Part, frozen=True):
    """How Spark runs."""

    image: str
    mode: Literal["Pod", "Executors"] = "Pod"
    executors: int = 2
    resources: Requirements = Requirements(requests={"cpu": 1, "memory": "2Gi"}, limits={"memory": "2Gi"})


class Bootstrap(_Part, frozen=True):
    """The snapshots of an application: their location, and when to make them."""

    location: str
    credentials_secret: str | None = None
    catalog: str | None = None
    schedule: str | None = None
    time_zone: str = "Etc/UTC"
    when_replay_exceeds: Duration | None = None
    keep: int | None = None
    deadline: Duration = Duration(hours=1)
    backoff_limit: int = 2
    ttl_seconds_after_finished: int = 604_800
    spark: Spark | None = None


class StateBootstrapSpec(_Part, frozen=True):
    """The specification of a snapshot; its fields are documented in ``docs/reference/statebootstraps.md``."""

    stream_app: str
    location: str
    spark: Spark
    credentials_secret: str | None = None
    catalog: str | None = None
    keep: int | None = None
    full: bool = False
    deadline: Duration = Duration(hours=1)
    backoff_limit: int = 2
    suspend: bool = False
    ttl_seconds_after_finished: int = 604_800


class StreamAppSpec(_Part, frozen=True):
    """The specification of an application; its fields are documented in ``docs/reference/streamapps.md``."""

    image: str
    topology: str
    kafka: Kafka
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: tuple[Name, ...] = ()
    application_id: str | None = None
    processing_guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once"
    replicas: int = 1
    standby_replicas: int = 0
    max_warmup_replicas: int = 2
    acceptable_recovery_lag: int = 10_000
    commit_interval: Duration | None = None
    session_timeout: Duration = Duration(seconds=6)
    config: dict[str, str] = {}
    env: tuple[EnvVariable, ...] = ()
    state: State = State()
    resources: Requirements = Requirements()
    pod: Pod = Pod()
    rollout: Rollout = Rollout()
    suspended: bool = False
    autoscaling: Autoscaling | None = None
    deletion: Deletion = Deletion()
    bootstrap: Bootstrap | None = None


def _decode_hook(kind: type[Any], value: Any) -> Any:
    """Decode types that msgspec does not know."""
    if kind is Duration:
        return Duration.parse(value)
    raise NotImplementedError(kind)


def read_spec(object: Mapping[str, Any], kind: str, spec: type[S], invalid: type[MillpondError]) -> S:
    """Return the specification of a custom resource, with all defaults.

    Args:
        object: the object from the API server.
        kind: of the object.
        spec: the type of its specification.
        invalid: the error to raise.

    Raises:
        MillpondError: `invalid`: the object does not match this operator's CRD.
    """
    try:
        return msgspec.convert(object.get("spec", {}), spec, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        meta = object["metadata"]
        raise invalid(
            f"Cannot decode {kind} '{meta['namespace']}/{meta['name']}' ({error}): install the CRDs of this operator's "
            f"release, then apply the {kind} again."
        ) from error
