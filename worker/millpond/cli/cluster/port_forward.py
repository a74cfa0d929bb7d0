"""Connections to a port of a pod, through the API server and the pod's node, as `kubectl port-forward` makes them.

They reach the port inside the pod: no NetworkPolicy has to admit them, and headers and TLS stay between the client and
the pod. The API server sees encrypted bytes if the port uses TLS, and a token in them is no concern of it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import Any

from .client import Cluster
from .failures import ClusterError, failure

__all__ = ("connection_to",)

_STATUS = re.compile(r"Handshake status (\d{3})")
_BODY = "-+-+- "
"""What the official client's text has before the body of the response."""
_MAX_QUOTED = 300
_CHUNK = 65_536


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
        status = _STATUS.search(text)
        if status is None:
            raise ClusterError(f"cannot {what}: {' '.join(text.split())[:_MAX_QUOTED]}") from error
        raise failure(int(status[1]), _body(text), what) from error
    ours, end = socket.socketpair()
    _Pump(forward, port, end).start(f"port {port} of {pod}")
    return ours


class _Pump:
    """Copies bytes between the official client's socket and one for this program.

    The official client's thread ends with a traceback if its socket is closed before all is read, and leaves its
    connection open if the pod ends it. Neither happens here.

    Args:
        forward: the official client's connection.
        port: the port of the pod.
        end: the other end of this program's socket.
    """

    def __init__(self, forward: Any, port: int, end: socket.socket) -> None:
        self._forward = forward
        self._theirs = forward.socket(port)
        self._end = end
        self._closed_here = threading.Event()

    def start(self, name: str) -> None:
        """Copy in both directions, by threads."""
        for copy in (self._send, self._receive):
            threading.Thread(target=copy, name=name, daemon=True).start()

    def _send(self) -> None:
        """Copy what the client sends, until it closes its socket."""
        with contextlib.suppress(OSError):
            while data := self._end.recv(_CHUNK):
                self._theirs.sendall(data)
            self._closed_here.set()
            self._theirs.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        """Copy what the pod sends, or read it in vain if the client has closed its socket."""
        with contextlib.suppress(OSError):
            while data := self._theirs.recv(_CHUNK):
                with contextlib.suppress(OSError):
                    self._end.sendall(data)
        if not self._closed_here.is_set():
            self._forward.websocket.shutdown()
        self._theirs.close()
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


def _body(text: str) -> str:
    """Return the body of a response to a refused handshake."""
    body = text.rpartition(_BODY)[2]
    return "" if body == "None" else body
