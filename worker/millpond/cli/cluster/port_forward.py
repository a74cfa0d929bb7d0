"""Connections to a port of a pod, through the API server and the pod's node, as `kubectl port-forward` makes them.

They reach the port inside the pod: no NetworkPolicy has to admit them, and headers and TLS stay between the client and
the pod. The API server sees encrypted bytes if the port uses TLS, and a token in them is no concern of it.
"""

from __future__ import annotations

import re
import socket

from .client import Cluster
from .failures import ClusterError, failure

__all__ = ("connection_to",)

_HANDSHAKE = re.compile(r"Handshake status (\d{3}).*?-\+-\+- (?:b'(.*)')?", re.DOTALL)


def connection_to(cluster: Cluster, namespace: str, pod: str, port: int) -> socket.socket:
    """Return a connection to a port of a pod.

    Raises:
        ClusterError: the user lacks the right to it, or the pod does not run.
    """
    from kubernetes.client import ApiException
    from kubernetes.stream import portforward

    what = f"connect to port {port} of pod '{pod}'"
    try:
        forward = portforward(cluster.core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port))
    except ApiException as error:
        text = str(error.reason)
        found = _HANDSHAKE.search(text)
        status = re.search(r"Handshake status (\d{3})", text)
        if status is None:
            raise ClusterError(f"cannot {what}: {' '.join(text.split())[:300]}") from error
        body = found[2].encode().decode("unicode_escape") if found is not None and found[2] else None
        raise failure(int(status[1]), body, what) from error
    forwarded = forward.socket(port)
    # A socket of its own, which TLS can take over; the connection ends when it is closed.
    connection = socket.fromfd(forwarded.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
    forward.close()
    return connection
