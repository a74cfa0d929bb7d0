"""The addresses of Services without a selector, so that workers and people reach only the leader."""

from __future__ import annotations

import contextlib
import logging

from millpond_operator.controllers.settings import Settings
from millpond_operator.kubernetes import Client, Invalid, Kind, NotFound, Object, kinds
from millpond_operator.resources import within

__all__ = ("announce", "announce_console", "console_endpoints", "console_slice", "coordinator_slice")

log = logging.getLogger(__name__)


async def announce(client: Client, settings: Settings) -> None:
    """Route workers to this operator, whatever another client or a former leader wrote.

    Nothing is written when the EndpointSlice is right already.

    Raises:
        ApiError: it cannot be read or written.
    """
    await _announce(client, kinds.ENDPOINT_SLICE, coordinator_slice(settings))


async def announce_console(client: Client, settings: Settings) -> None:
    """Route people who look at the console to this operator; raises like `announce`."""
    await _announce(client, kinds.ENDPOINT_SLICE, console_slice(settings))
    await _announce(client, kinds.ENDPOINTS, console_endpoints(settings))


async def _announce(client: Client, kind: Kind, wanted: Object) -> None:
    namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
    with contextlib.suppress(NotFound):
        if within(wanted, await client.get(kind, namespace, name)):
            return
    try:
        await client.apply(kind, wanted)
    except Invalid:  # the address family of a slice is immutable
        log.warning("%s %s/%s: recreating it, since its address family differs", kind, namespace, name)
        await client.delete(kind, namespace, name)
        await client.apply(kind, wanted)


def coordinator_slice(settings: Settings) -> Object:
    """Return the EndpointSlice of the coordinator's Service, with the address of this operator only."""
    return _endpoint_slice(settings, settings.coordinator_service, "coordinator", settings.coordinator_port)


def console_slice(settings: Settings) -> Object:
    """Return the EndpointSlice of the console's Service, with the address of this operator only."""
    return _endpoint_slice(settings, settings.console_service, "http", settings.http_port)


def _endpoint_slice(settings: Settings, service: str, port_name: str, port: int) -> Object:
    return {
        "apiVersion": kinds.ENDPOINT_SLICE.api_version,
        "kind": kinds.ENDPOINT_SLICE.kind,
        "metadata": {
            "name": service,
            "namespace": settings.namespace,
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "millpond-operator",
                "app.kubernetes.io/part-of": "millpond",
            },
        },
        "addressType": "IPv6" if ":" in settings.pod_ip else "IPv4",
        "endpoints": [
            {"addresses": [settings.pod_ip], "conditions": {"ready": True}, "targetRef": _pod(settings)},
        ],
        "ports": [{"name": port_name, "port": port, "protocol": "TCP"}],
    }


def console_endpoints(settings: Settings) -> Object:
    """Return the Endpoints of the console's Service.

    Up to Kubernetes 1.34, the API server's proxy knows only Endpoints, and only addresses that belong to a pod.
    """
    return {
        "apiVersion": kinds.ENDPOINTS.api_version,
        "kind": kinds.ENDPOINTS.kind,
        "metadata": {
            "name": settings.console_service,
            "namespace": settings.namespace,
            "labels": {
                "endpointslice.kubernetes.io/skip-mirror": "true",
                "app.kubernetes.io/part-of": "millpond",
            },
        },
        "subsets": [
            {
                "addresses": [{"ip": settings.pod_ip, "targetRef": _pod(settings)}],
                "ports": [{"name": "http", "port": settings.http_port, "protocol": "TCP"}],
            }
        ],
    }


def _pod(settings: Settings) -> Object:
    return {"kind": "Pod", "namespace": settings.namespace, "name": settings.pod_name}
