"""What the commands show: a session of this machine, or a StreamApp on a cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from millpond.cli.cluster.applications import Applications, Report
from millpond.cli.cluster.client import Cluster
from millpond.cli.cluster.options import Where
from millpond.cli.dev.remote import NoSession, Remote
from millpond.errors import MillpondError

__all__ = ("cluster_report", "connected", "now_ms", "session")


@contextlib.contextmanager
def connected(where: Where) -> Iterator[tuple[Cluster, Applications]]:
    """Yield the connection to a cluster and its applications.

    Raises:
        ClusterError: the kubeconfig cannot be used.
    """
    cluster = Cluster(where)
    try:
        yield cluster, Applications(cluster, where)
    finally:
        cluster.close()


def cluster_report(applications: Applications, name: str) -> Callable[[], Report]:
    """Return a function that reads a StreamApp again.

    Raises:
        ClusterError: there is no such StreamApp.
    """
    applications.find(name)
    return lambda: applications.report(applications.find(name))


def session(name: str) -> Remote:
    """Return a session of this machine by its application.

    Raises:
        MillpondError: there is none.
    """
    try:
        return Remote.find(name)
    except NoSession as error:
        raise MillpondError(
            f"{str(error).rstrip('.')}, or add --kubernetes for a StreamApp of the current context's cluster."
        ) from error


def now_ms() -> int:
    """Return the current time, epoch ms."""
    return int(time.time() * 1000)
