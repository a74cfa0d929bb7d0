"""Applications on a cluster: the operator's overview of them, or what their objects show when it cannot be had."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from millpond.protocol.overview import ApplicationOverview, ApplicationSummary

from .client import Cluster, Object
from .failures import ClusterError, Forbidden, NotFound, Unavailable
from .options import Where
from .overview import overview_of, summary_of

__all__ = ("Applications", "Report", "Summaries")

_PORT = 8081
_UNSERVED = re.compile(r'(services|endpoints) ".*" not found')
"""What the API server answers when its proxy has no address for a Service."""
_T = TypeVar("_T")


class _Summaries(msgspec.Struct):
    applications: tuple[ApplicationSummary, ...]


@dataclass(frozen=True)
class Report:
    """What is known about an application."""

    overview: ApplicationOverview
    app: Object
    """The StreamApp."""
    missing: tuple[str, ...] = ()
    """Which figures are missing and why, one sentence each."""


@dataclass(frozen=True)
class Summaries:
    """A list of applications."""

    applications: tuple[ApplicationSummary, ...]
    missing: tuple[str, ...] = ()
    """Which figures are missing and why."""


class Applications:
    """The applications of a cluster.

    Args:
        cluster: the cluster.
        where: the options of the command.

    Raises:
        ClusterError: `--console` is not NAMESPACE/SERVICE.
    """

    def __init__(self, cluster: Cluster, where: Where) -> None:
        self._cluster = cluster
        self._console_namespace, slash, service = where.console.partition("/")
        if not slash or not service or not self._console_namespace:
            raise ClusterError(f"--console '{where.console}' should look like millpond-system/millpond-console.")
        self._service = f"http:{service}:{_PORT}"

    def find(self, name: str) -> Object:
        """Return the StreamApp of a name, or of a namespace and a name with a slash between them.

        Raises:
            ClusterError: there is none; the sentence has similar names.
        """
        namespace, slash, short = name.rpartition("/")
        namespace = namespace if slash else self._cluster.namespace
        try:
            return self._cluster.stream_app(namespace, short)
        except NotFound as error:
            if "not installed" in str(error):
                raise
            raise NotFound(self._no_such_app(namespace, short)) from error

    def report(self, app: Object) -> Report:
        """Return what is known about a StreamApp.

        Raises:
            ClusterError: the cluster does not answer.
        """
        namespace, name = app["metadata"]["namespace"], app["metadata"]["name"]
        try:
            answer = self._console(f"api/applications/{namespace}/{name}")
            return Report(msgspec.convert(answer, ApplicationOverview), app)
        except (_NoConsole, msgspec.ValidationError) as error:
            why, down = _why(error), isinstance(error, _NoConsole) and error.down
        missing = [f"Rates, lags and the reasons of moves are missing: {why}"]
        if down:
            missing.append("Conditions and changes in progress are the last that an operator saved.")
        cluster = self._cluster

        def read(what: str, function: Callable[[str, str], _T], otherwise: _T) -> _T:
            try:
                return function(namespace, name)
            except NotFound:
                missing.append(f"{what} are missing: the coordinator has not saved any yet.")
            except Forbidden as error:
                missing.append(f"{what} are missing: you lack the right to {error.right}.")
            return otherwise

        overview = overview_of(
            app,
            read("The tasks of workers", cluster.stream_assignment, None),
            read("The pods", cluster.workers, []),
            read("Events", cluster.events, []),
            int(time.time() * 1000),
        )
        return Report(overview, app, tuple(missing))

    def summaries(self, namespace: str | None) -> Summaries:
        """Return the applications of a namespace; of all with None.

        Raises:
            ClusterError: the user may not list them, or the cluster does not answer.
        """
        try:
            answer = msgspec.convert(self._console("api/applications"), _Summaries)
            found = [each for each in answer.applications if namespace in {None, each.namespace}]
            return Summaries(tuple(sorted(found, key=_place)))
        except (_NoConsole, msgspec.ValidationError) as error:
            why = _why(error)
        apps = [summary_of(each) for each in self._cluster.stream_apps(namespace)]
        return Summaries(tuple(sorted(apps, key=_place)), (f"Rates and lags are missing: {why}",))

    def _console(self, path: str) -> Mapping[str, Any]:
        """Return what the operator answers.

        Raises:
            _NoConsole: it does not answer this user.
        """
        where = f"{self._console_namespace}/{self._service.split(':')[1]}"
        try:
            found = self._cluster.from_service(self._console_namespace, self._service, path)
        except Forbidden as error:
            raise _NoConsole(
                f"you lack the right to get services/proxy of {where}, which the role millpond-console grants."
            ) from error
        except NotFound as error:
            if _UNSERVED.match(str(error)):
                raise self._unserved(where) from error
            raise _NoConsole("the operator does not know the application, or is of a version before /api.") from error
        except Unavailable as error:
            if "no endpoints" in str(error):
                raise _NoConsole("no operator leads: see the operator's pods.", down=True) from error
            raise _NoConsole(f"the operator does not answer ({_sentence(error)}).", down=True) from error
        if not isinstance(found, dict):
            raise _NoConsole("the operator is of another version.")
        return found

    def _unserved(self, where: str) -> _NoConsole:
        """Return why the Service leads nowhere: it does not exist, or no operator leads and so gave it an address."""
        namespace, _, name = where.partition("/")
        try:
            exists = self._cluster.has_service(namespace, name)
        except ClusterError:  # the user may not look
            return _NoConsole(f"no operator leads, or Service {where} does not exist (--console).", down=True)
        if exists:
            return _NoConsole("no operator leads: see the operator's pods.", down=True)
        return _NoConsole(f"there is no Service {where}: is the operator installed elsewhere (--console)?")

    def _no_such_app(self, namespace: str, name: str) -> str:
        here = [each["metadata"]["name"] for each in self._list(namespace)]
        text = f"there is no StreamApp '{name}' in namespace '{namespace}'"
        if near := difflib.get_close_matches(name, here, n=3):
            return f"{text}: did you mean {' or '.join(repr(each) for each in near)}?"
        elsewhere = [each["metadata"]["namespace"] for each in self._list(None) if each["metadata"]["name"] == name]
        if elsewhere:
            return f"{text}, but in {', '.join(repr(each) for each in elsewhere)}: add -n {elsewhere[0]}."
        if here:
            return f"{text}, which has: {', '.join(sorted(here)[:10])}."
        return f"{text}, which has none: name another one by -n."

    def _list(self, namespace: str | None) -> list[Object]:
        try:
            return self._cluster.stream_apps(namespace)
        except ClusterError:  # only the hint is missing
            return []


class _NoConsole(Exception):
    """The operator does not answer; the text is the reason, as a sentence.

    Attributes:
        down: whether it answers nobody.
    """

    def __init__(self, why: str, *, down: bool = False) -> None:
        super().__init__(why)
        self.down = down


def _place(each: ApplicationSummary) -> tuple[str, str]:
    return each.namespace, each.name


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, _NoConsole) else "the operator is of another version."


def _sentence(error: Exception) -> str:
    return str(error).rstrip(".")
