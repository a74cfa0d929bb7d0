"""The options that choose between this machine and a Kubernetes cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from millpond.durations import Duration

__all__ = ("CONSOLE", "Where", "cluster_options", "duration_option", "where_options")

CONSOLE = "millpond-system/millpond-console"
"""The default namespace and name of the Service of the operator's console."""


def duration_option(*names: str, **given: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option whose value is a `Duration`, such as `10m`."""

    def convert(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Duration | None:
        try:
            return None if value is None else Duration.parse(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from None

    return click.option(*names, metavar="DURATION", callback=convert, **given)


@dataclass(frozen=True)
class Where:
    """Where an application runs, by the options of a command."""

    kubernetes: bool = False
    namespace: str | None = None
    """None for the namespace of the context."""
    context: str | None = None
    """None for the current context."""
    kubeconfig: Path | None = None
    """None for $KUBECONFIG or ~/.kube/config."""
    console: str = CONSOLE
    """The namespace and name of the Service of the operator's console, with a slash between them."""

    @property
    def on_cluster(self) -> bool:
        """Whether the application is a StreamApp. Each of the options implies `--kubernetes`."""
        return self.kubernetes or any((self.namespace, self.context, self.kubeconfig))


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command whose `-n` has another meaning; it gets them as `app` and `cluster`."""

    @click.option("--kubernetes", "app", metavar="NAME", help="Ask the workers of this StreamApp of a cluster.")
    @click.option("--namespace", metavar="NAME", help="Its namespace. Default: the context's.")
    @_kubeconfig_options
    @functools.wraps(function)
    def with_cluster(
        *, app: str | None, namespace: str | None, context: str | None, kubeconfig: Path | None, **arguments: Any
    ) -> Any:
        where = Where(app is not None, namespace, context, kubeconfig)
        if app is None and where.on_cluster:
            raise click.UsageError("name the StreamApp by --kubernetes NAME.")
        return function(app=app, cluster=where, **arguments)

    return with_cluster


def _kubeconfig_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--kubeconfig",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Default: $KUBECONFIG, or ~/.kube/config.",
        ),
        click.option("--context", metavar="NAME", help="The context of the kubeconfig. Default: the current one."),
    ):
        function = option(function)
    return function


def where_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as `where`."""

    @click.option("--kubernetes", is_flag=True, help="A StreamApp on Kubernetes, not a session of this machine.")
    @click.option(
        "-n", "--namespace", metavar="NAME", help="The namespace. Default: the context's. Implies --kubernetes."
    )
    @_kubeconfig_options
    @click.option(
        "--console",
        metavar="NAMESPACE/SERVICE",
        default=CONSOLE,
        envvar="MILLPOND_CONSOLE",
        help=f"The Service of the operator's console. Default: $MILLPOND_CONSOLE, or {CONSOLE}.",
    )
    @functools.wraps(function)
    def with_where(
        *,
        kubernetes: bool,
        namespace: str | None,
        context: str | None,
        kubeconfig: Path | None,
        console: str,
        **arguments: Any,
    ) -> Any:
        return function(where=Where(kubernetes, namespace, context, kubeconfig, console), **arguments)

    return with_where
