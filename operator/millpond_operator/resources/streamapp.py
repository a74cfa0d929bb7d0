"""A StreamApp as it was read: the typed specification beside the parts of the object that others need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.errors import MillpondError

from .names import FINALIZER, RECONCILE, RESTARTED_AT
from .spec import Kafka, StreamAppSpec, read_spec

__all__ = ("InvalidStreamApp", "StreamApp", "parse", "unread")


class InvalidStreamApp(MillpondError):
    """No worker can be made of the object: the CRD that is installed lets more through than the operator's own, or the
    specification is too large for a process.
    """


@dataclass(frozen=True, kw_only=True)
class StreamApp:
    """One application on Kubernetes.

    Attributes:
        generation: grows with every change of the specification.
        spec: with all defaults filled in.
        status: as it was last written, untyped.
        deleting: somebody deleted it, and a finalizer holds it.
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

    @property
    def application_id(self) -> str:
        """The application's id in Kafka."""
        return self.spec.application_id or self.name

    @property
    def paused(self) -> bool:
        """Nothing of it is to be changed for now."""
        return self.annotations.get(RECONCILE) == "paused"

    @property
    def restarted_at(self) -> str | None:
        """A new value of this restarts the workers."""
        return self.annotations.get(RESTARTED_AT)

    @property
    def cleans_up_kafka(self) -> bool:
        """Deleting it deletes its internal topics and its consumer group: it needs the finalizer until that is done."""
        return self.spec.deletion.kafka == "Delete"

    @property
    def has_finalizer(self) -> bool:
        """Its deletion waits for the operator."""
        return FINALIZER in self.finalizers


def parse(object: Mapping[str, Any]) -> StreamApp:
    """From what the API server gave.

    Raises:
        InvalidStreamApp: it does not follow the CRD that this operator knows.
    """
    return _of(object, read_spec(object, "StreamApp", StreamAppSpec, InvalidStreamApp))


def unread(object: Mapping[str, Any]) -> StreamApp:
    """What can be said of a StreamApp whose specification is not looked at: enough to write its status."""
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
    )
