"""A StreamApp: its typed specification, and the parts of the object that the operator needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.errors import MillpondError

from .names import DRAIN, FINALIZER, RECONCILE, RESTARTED_AT
from .spec import Kafka, StreamAppSpec, read_spec

__all__ = ("InvalidStreamApp", "StreamApp", "parse", "without_spec")


_AUTOSCALERS = ("kube-controller-manager", "horizontal-pod-autoscaler", "keda")
"""How the field managers of autoscalers begin; a HorizontalPodAutoscaler runs in the kube-controller-manager."""


class InvalidStreamApp(MillpondError):
    """No worker can be made from the object.

    The installed CRD accepts more than the operator's own, or the specification is too large for a process.
    """


@dataclass(frozen=True, kw_only=True)
class StreamApp:
    """One application on Kubernetes.

    Attributes:
        generation: grows with every change of the specification.
        spec: with all defaults.
        status: the last written status, untyped.
        deleting: whether it was deleted, and a finalizer holds it.
        written_replicas: `spec.replicas` as it is written. In `spec` it is the number of workers that is wanted now,
            which the operator's autoscaler may have chosen.
        scaled_by: the field manager of an autoscaler of Kubernetes that set `spec.replicas` last; "" for none.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    spec: StreamAppSpec
    status: Mapping[str, Any]
    deleting: bool
    written_replicas: int = 1
    scaled_by: str = ""

    @property
    def application_id(self) -> str:
        """The application's id in Kafka."""
        return self.spec.application_id or self.name

    @property
    def paused(self) -> bool:
        """Whether an annotation pauses reconciling: the operator changes no object of the application."""
        return self.annotations.get(RECONCILE) == "paused"

    @property
    def restarted_at(self) -> str | None:
        """The restart annotation; a new value restarts the workers."""
        return self.annotations.get(RESTARTED_AT)

    @property
    def workers_to_drain(self) -> frozenset[str]:
        """The workers that an annotation asks to drain. Names that are none of its workers have no effect."""
        asked = {each.strip() for each in self.annotations.get(DRAIN, "").split(",")}
        return frozenset(name for number in range(self.spec.replicas) if (name := f"{self.name}-{number}") in asked)

    @property
    def cleans_up_kafka(self) -> bool:
        """Whether its deletion deletes internal topics and the consumer group, for which it needs the finalizer."""
        return self.spec.deletion.kafka == "Delete"

    @property
    def has_finalizer(self) -> bool:
        """Whether its deletion waits for the operator."""
        return FINALIZER in self.finalizers


def parse(object: Mapping[str, Any]) -> StreamApp:
    """Parse an object from the API server.

    Raises:
        InvalidStreamApp: it does not match this operator's CRD.
    """
    return _of(object, read_spec(object, "StreamApp", StreamAppSpec, InvalidStreamApp))


def without_spec(object: Mapping[str, Any]) -> StreamApp:
    """Return a StreamApp without its specification: enough to write its status."""
    return _of(object, StreamAppSpec(image="", topology="", kafka=Kafka(bootstrap_servers="")))


def _of(object: Mapping[str, Any], spec: StreamAppSpec) -> StreamApp:
    metadata = object["metadata"]
    return StreamApp(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        resource_version=metadata.get("resourceVersion", ""),
        annotations=metadata.get("annotations") or {},
        finalizers=tuple(metadata.get("finalizers") or ()),
        spec=spec,
        status=object.get("status") or {},
        deleting="deletionTimestamp" in metadata,
        written_replicas=spec.replicas,
        scaled_by=_scaled_by(metadata),
    )


def _scaled_by(metadata: Mapping[str, Any]) -> str:
    """Return the field manager of a HorizontalPodAutoscaler or of KEDA that owns `spec.replicas`; "" for none."""
    return next(
        (
            manager
            for entry in metadata.get("managedFields") or ()
            if entry.get("subresource") == "scale"
            and "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
            and (manager := str(entry.get("manager", ""))).startswith(_AUTOSCALERS)
        ),
        "",
    )
