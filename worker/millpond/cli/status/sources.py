"""What the commands show: a session of this machine, or a StreamApp on a cluster."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from millpond.cli.cluster.applications import Applications, Report
from millpond.cli.cluster.client import Cluster
from millpond.cli.cluster.options import Where
from millpond.cli.dev.remote import NoSession, Remote
from millpond.cli.session_broker import session_here
from millpond.errors import MillpondError

__all__ = ("cluster_report", "connected", "name_option", "now_ms", "session", "streamapp")


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


def name_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add NAME to a command, and ``--session``, as other commands have it; it gets the one that is given as `name`."""

    @click.argument("name", required=False)
    @click.option("--session", "named", metavar="NAME", help="The same as NAME, for a session of this machine.")
    @functools.wraps(function)
    def with_name(*given: Any, name: str | None, named: str | None, where: Where, **arguments: Any) -> Any:
        if named is not None and where.on_cluster:
            raise click.UsageError("--session is for a session of this machine: leave it out, and name the StreamApp.")
        if None not in (name, named) and name != named:
            raise click.UsageError(f"NAME is '{name}', but --session is '{named}': give one of them.")
        return function(*given, name=name or named, where=where, **arguments)

    return with_name


def streamapp(name: str | None) -> str:
    """Return the name of a StreamApp, which is required.

    Raises:
        click.UsageError: there is none.
    """
    if name is None:
        raise click.UsageError("name the StreamApp; `millpond status --kubernetes` lists them.")
    return name


def session(name: str | None) -> Remote:
    """Return a session of this machine by its application; without a name that of this directory, or the only one.

    Raises:
        MillpondError: there is none, or there are several.
    """
    try:
        return session_here(name)
    except NoSession as error:
        raise MillpondError(
            f"{str(error).rstrip('.')}, or add --kubernetes for a StreamApp of the current context's cluster."
        ) from error


def now_ms() -> int:
    """Return the current time, epoch ms."""
    return int(time.time() * 1000)
