"""The EndpointSlice of the coordinator's Service, which has no selector, so that workers reach only the leader."""

from __future__ import annotations

import contextlib
import logging

from millpond_operator.controllers.settings import Settings
from millpond_operator.kubernetes import Client, Invalid, NotFound, Object, kinds
from millpond_operator.resources import within

__all__ = ("announce", "endpoint_slice")

log = logging.getLogger(__name__)


async def announce(client: Client, settings: Settings) -> None:
    """Route workers to this operator, whatever another client or a former leader wrote.

    Nothing is written when the EndpointSlice is right already.

    Raises:
        ApiError: it cannot be read or written.
    """
    wanted = endpoint_slice(settings)
    with contextlib.suppress(NotFound):
        if within(wanted, await client.get(kinds.ENDPOINT_SLICE, settings.namespace, settings.coordinator_service)):
            return
    try:
        await client.apply(kinds.ENDPOINT_SLICE, wanted)
    except Invalid:  # the address family of a slice is immutable
        log.warning(
            "EndpointSlice %s/%s: recreating it, since its address family differs",
            settings.namespace,
            settings.coordinator_service,
        )
        await client.delete(kinds.ENDPOINT_SLICE, settings.namespace, settings.coordinator_service)
        await client.apply(kinds.ENDPOINT_SLICE, wanted)


def endpoint_slice(settings: Settings) -> Object:
    """Return the EndpointSlice with the address of this operator only."""
    return {
        "apiVersion": kinds.ENDPOINT_SLICE.api_version,
        "kind": kinds.ENDPOINT_SLICE.kind,
        "metadata": {
            "name": settings.coordinator_service,
            "namespace": settings.namespace,
            "labels": {
                "kubernetes.io/service-name": settings.coordinator_service,
                "endpointslice.kubernetes.io/managed-by": "millpond-operator",
                "app.kubernetes.io/part-of": "millpond",
            },
        },
        "addressType": "IPv6" if ":" in settings.pod_ip else "IPv4",
        "endpoints": [{"addresses": [settings.pod_ip], "conditions": {"ready": True}}],
        "ports": [{"name": "coordinator", "port": settings.coordinator_port, "protocol": "TCP"}],
    }
