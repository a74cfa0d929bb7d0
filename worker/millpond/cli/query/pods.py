"""The workers of a StreamApp: their URLs, and connections to them through the API server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from millpond.cli.cluster.applications import Applications
from millpond.cli.cluster.client import Cluster, Object
from millpond.cli.cluster.failures import NotFound, Unavailable
from millpond.cli.cluster.options import Where
from millpond.cli.cluster.port_forward import connection_to
from millpond.errors import MillpondError
from millpond.queries.transport import Connect

__all__ = ("worker_pods",)

_QUERY_PORT = 8081
_CERTIFICATE = "query.ssl.certificate.location"


@contextlib.contextmanager
def worker_pods(app: str, where: Where) -> Iterator[tuple[tuple[str, ...], Connect]]:
    """Yield the URLs of a StreamApp's workers, and what connects to them.

    Raises:
        ClusterError: the cluster does not answer, or there is no such StreamApp.
        MillpondError: none of its workers is ready.
    """
    cluster = Cluster(where)
    try:
        found = Applications(cluster, where).find(app)
        namespace, name = found["metadata"]["namespace"], found["metadata"]["name"]
        scheme = "https" if _CERTIFICATE in (found["spec"].get("config") or {}) else "http"
        ready = [pod["metadata"]["name"] for pod in cluster.workers(namespace, name) if _is_ready(pod)]
        if not ready:
            raise MillpondError(
                f"no worker of '{name}' is ready to answer: see `millpond status {namespace}/{name} --kubernetes`."
            )

        def connect(host: str, port: int) -> socket.socket:
            pod = host.partition(".")[0]
            try:
                return connection_to(cluster, namespace, pod, port)
            except (NotFound, Unavailable) as error:  # the next worker may answer
                raise ConnectionError(str(error)) from error

        # By these names workers know each other, and certificates are for them.
        yield tuple(f"{scheme}://{pod}.{name}.{namespace}.svc:{_QUERY_PORT}" for pod in ready), connect
    finally:
        cluster.close()


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
