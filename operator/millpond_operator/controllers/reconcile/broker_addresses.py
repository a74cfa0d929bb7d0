"""One spelling for the addresses of Kafka brokers, since a Kubernetes Service has several names."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("Address", "address_of")

_PORT = "9092"
_SUFFIX, _SERVICE = ".cluster.local", ".svc"


@dataclass(frozen=True)
class Address:
    """The address of an application's brokers."""

    brokers: tuple[str, ...]
    """`host:port` of each broker, sorted, in one spelling."""
    sure: bool
    """Whether every name means the same in all namespaces.

    `a.b` may be Service `a` in namespace `b` or, in a namespace with such a pod, pod `a` of Service `b`.
    """

    def __str__(self) -> str:
        return ",".join(self.brokers)


def address_of(bootstrap_servers: str, namespace: str) -> Address:
    """Return the address of `spec.kafka.bootstrapServers` as pods of a namespace resolve it."""
    found = {_broker(each, namespace) for each in bootstrap_servers.split(",") if each.strip()}
    return Address(tuple(sorted(name for name, _ in found)), all(sure for _, sure in found))


def _broker(text: str, namespace: str) -> tuple[str, bool]:
    listed = text.strip().lower().rpartition("://")[2]
    host, colon, port = listed.rpartition(":")
    if not colon or "]" in port:
        host, port = listed, _PORT
    host, sure = _qualified(host.rstrip("."), namespace)
    return f"{host}:{port}", sure


def _qualified(host: str, namespace: str) -> tuple[str, bool]:
    """Return a name without the suffixes of Services: `kafka.shop` for `kafka.shop.svc.cluster.local`."""
    inside = host.removesuffix(_SUFFIX).removesuffix(_SERVICE)
    if "." not in host and ":" not in host:
        return f"{host}.{namespace}", True
    return inside, inside != host or host.count(".") != 1
