"""Requests to a cluster through the official client: kubeconfig, plugins for logins, and failures as sentences."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from millpond.errors import MillpondError

from .failures import ClusterError, NotFound, Unavailable, failure
from .options import Where
from .printable import printable

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, CoreV1Api
    from urllib3 import HTTPResponse

__all__ = ("APP_LABEL", "GROUP", "Cluster", "Object")

Object = dict[str, Any]
"""An object of the API server: JSON as Python types."""

GROUP = "millpond.dev"
APP_LABEL = "millpond.dev/app"
"""The label of objects that belong to a StreamApp."""

_VERSION = "v1alpha1"
_TIMEOUT_S = (5.0, 30.0)
_SERVICE_TIMEOUT_S = (5.0, 10.0)
"""The operator answers in much less than a second, and what it does not answer is read without it."""
_SILENCE_S = 1_000_000.0
"""No limit for the time between two lines of a followed log."""


class _Failed(ClusterError):
    """A failure with a shorter text for a sentence that names the request."""

    def __init__(self, message: str, short: str) -> None:
        super().__init__(message)
        self.short = short


class _Unreachable(_Failed):
    """The API server does not answer, or what it forwards a request to."""


class _NoJson(_Failed):
    """The answer is no JSON."""


class Cluster:
    """A cluster, by the user's kubeconfig.

    Args:
        where: the options of the command.

    Raises:
        ClusterError: the kubeconfig is missing or cannot be used.
    """

    def __init__(self, where: Where) -> None:
        try:
            from kubernetes import client
        except ImportError as error:
            raise MillpondError(
                "--kubernetes needs the official client for Python: pip install 'millpond[kubernetes]'."
            ) from error
        configuration, namespace = _configuration(where)
        self._client = client
        self.api: ApiClient = client.ApiClient(configuration)
        """The official client's connection."""
        self.core: CoreV1Api = client.CoreV1Api(self.api)
        self._custom = client.CustomObjectsApi(self.api)
        self.url: str = configuration.host
        self.namespace: str = where.namespace or namespace
        """The namespace of the options or the context."""

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def stream_app(self, namespace: str, name: str) -> Object:
        """Return a StreamApp.

        Raises:
            NotFound: it does not exist, or its custom resource definition is not installed.
        """
        return self._custom_object("streamapps", "StreamApp", namespace, name)

    def stream_apps(self, namespace: str | None) -> list[Object]:
        """Return the StreamApps of a namespace; of all with None.

        Raises:
            NotFound: the custom resource definition is not installed.
        """
        listed = self._custom.list_namespaced_custom_object if namespace else self._custom.list_cluster_custom_object
        where = {"namespace": namespace} if namespace else {}
        try:
            found = self._call("list StreamApps", listed, group=GROUP, version=_VERSION, plural="streamapps", **where)
        except NotFound as error:
            raise _not_installed() from error
        items: list[Object] = found["items"]
        return items

    def stream_assignment(self, namespace: str, name: str) -> Object:
        """Return a StreamAssignment; raises like `stream_app`."""
        return self._custom_object("streamassignments", "StreamAssignment", namespace, name)

    def _custom_object(self, plural: str, kind: str, namespace: str, name: str) -> Object:
        try:
            found: Object = self._call(
                f"read {kind} '{name}'",
                self._custom.get_namespaced_custom_object,
                group=GROUP,
                version=_VERSION,
                namespace=namespace,
                plural=plural,
                name=name,
            )
        except NotFound as error:
            if f'"{name}"' not in str(error):  # the path does not exist, not the object
                raise _not_installed() from error
            raise
        return found

    def patch_stream_app(self, namespace: str, name: str, patch: Object) -> Object:
        """Change a StreamApp by a JSON merge patch; return it."""
        patched: Object = self._call(
            f"change StreamApp '{name}'",
            self._custom.patch_namespaced_custom_object,
            group=GROUP,
            version=_VERSION,
            namespace=namespace,
            plural="streamapps",
            name=name,
            body=patch,
        )
        return patched

    def workers(self, namespace: str, name: str) -> list[Object]:
        """Return the pods of a StreamApp's workers, by ordinal."""
        selector = f"{APP_LABEL}={name},app.kubernetes.io/component=worker"
        found = self._call("list pods", self.core.list_namespaced_pod, namespace, label_selector=selector)
        return sorted(found["items"], key=lambda pod: _ordinal(pod["metadata"]["name"]))

    def events(self, namespace: str, name: str) -> list[Object]:
        """Return the events of a StreamApp."""
        selector = f"involvedObject.kind=StreamApp,involvedObject.name={name}"
        found = self._call("list events", self.core.list_namespaced_event, namespace, field_selector=selector)
        items: list[Object] = found["items"]
        return items

    def has_service(self, namespace: str, name: str) -> bool:
        """Return whether a Service exists."""
        try:
            self._call(f"read Service '{name}'", self.core.read_namespaced_service, name, namespace)
        except NotFound:
            return False
        return True

    def from_service(self, namespace: str, service: str, path: str) -> Any:
        """Return the JSON that a Service answers through the API server's proxy.

        Args:
            namespace: of the Service.
            service: its name with scheme and port: `http:console:8081`.
            path: without a leading slash.

        Raises:
            Unavailable: nothing answers there in time, or not with JSON.
        """
        what = f"reach Service '{service}'"
        get = self.core.connect_get_namespaced_service_proxy_with_path
        try:
            return self._call(what, get, service, namespace, path, _request_timeout=_SERVICE_TIMEOUT_S)
        except (_Unreachable, _NoJson) as error:  # another request shows whether the API server does not answer either
            raise Unavailable(str(error.short)) from error

    @contextlib.contextmanager
    def log(self, namespace: str, pod: str, *, follow: bool, **parameters: Any) -> Iterator[Iterator[bytes]]:
        """Yield the lines of a container's log, without line ends.

        Args:
            namespace: of the pod.
            pod: its name.
            follow: whether to wait for further lines.
            parameters: of the API: `container`, `previous`, `since_seconds`, `timestamps`.
        """
        response = self._request(
            f"read the log of pod '{pod}'",
            self.core.read_namespaced_pod_log,
            pod,
            namespace,
            follow=follow,
            _request_timeout=(_TIMEOUT_S[0], _SILENCE_S) if follow else _TIMEOUT_S,
            **{key: value for key, value in parameters.items() if value is not None},
        )
        try:
            yield _lines(response)
        finally:
            response.close()

    def _call(self, what: str, function: Callable[..., Any], *args: Any, **parameters: Any) -> Any:
        from urllib3.exceptions import HTTPError

        try:
            response = self._request(what, function, *args, **{"_request_timeout": _TIMEOUT_S, **parameters})
            return printable(json.loads(response.data))
        except (HTTPError, OSError) as error:  # while it reads the body
            raise self._unreachable(error) from error
        except ValueError as error:
            raise _NoJson(
                f"cannot {what}: the answer is no JSON: check the address {self.url}.", "its answer is no JSON"
            ) from error

    def _request(self, what: str, function: Callable[..., Any], *args: Any, **parameters: Any) -> HTTPResponse:
        from urllib3.exceptions import HTTPError

        try:
            response: HTTPResponse = function(*args, _preload_content=False, **parameters)
        except self._client.ApiException as error:
            if not error.status:  # the TLS connection failed
                raise self._unreachable(error.reason) from error
            raise failure(error.status, error.body, what) from error
        except (HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        return response

    def _unreachable(self, error: object) -> ClusterError:
        reason = getattr(error, "reason", error)
        return _Unreachable(
            f"cannot reach the cluster at {self.url} ({_brief(reason)}): check the network, and which cluster the "
            "kubeconfig's context names.",
            "no answer in time",
        )


def _configuration(where: Where) -> tuple[Any, str]:
    """Return the client's configuration and the namespace of the context."""
    from kubernetes import client, config
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
    from yaml import YAMLError  # a dependency of the official client, which does not catch it

    # The type call skips a default that another part of the process may have set.
    configuration = type.__call__(client.Configuration)
    configuration.retries = False
    file = str(where.kubeconfig) if where.kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    with _captured_errors() as logged:
        try:
            merged = KubeConfigMerger(file)
            if merged.config is None:
                raise config.ConfigException("No configuration found.")
            names = [each["name"] for each in merged.config["contexts"]]
            if where.context and where.context not in names:
                raise ClusterError(
                    f"context '{where.context}' is not in the kubeconfig {file}, which has: {', '.join(names)}."
                )
            loader = KubeConfigLoader(merged.config, active_context=where.context)
            loader.load_and_set(configuration)
            current = loader.current_context
        except config.ConfigException as error:
            if "KUBERNETES_SERVICE_HOST" in os.environ and where.kubeconfig is None and where.context is None:
                return _of_this_pod(configuration)
            raise _unusable(file, error) from error
        except (YAMLError, OSError, AttributeError, TypeError, KeyError, ValueError) as error:
            raise _unusable(file, error) from error  # the official client expects a well-formed file
    if logged:  # the official client only logs what a plugin fails with, and continues without a login
        raise ClusterError(
            f"the login plugin of the kubeconfig {file} failed ({_brief(logged[-1])}): log in again, or run the plugin "
            "by itself to see why."
        )
    return configuration, current["context"].get("namespace") or "default"


def _of_this_pod(configuration: Any) -> tuple[Any, str]:
    """Return the configuration of the pod that this process runs in."""
    from kubernetes import config

    try:
        config.load_incluster_config(client_configuration=configuration)
        with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace", encoding="utf-8") as file:  # noqa: PTH123
            return configuration, file.read().strip()
    except (config.ConfigException, OSError) as error:
        raise ClusterError(f"this pod has no service account for the API server ({_brief(error)}).") from error


def _unusable(file: str, error: Exception) -> ClusterError:
    if "No configuration found" in str(error):
        return ClusterError(
            f"there is no kubeconfig at {file}: name one by --kubeconfig or $KUBECONFIG, or leave out --kubernetes for "
            "a session of this machine."
        )
    if "current-context" in str(error):
        return ClusterError(f"the kubeconfig {file} has no current context: name one by --context.")
    return ClusterError(f"the kubeconfig {file} cannot be used ({_brief(error)}): correct it.")


@contextlib.contextmanager
def _captured_errors() -> Iterator[list[str]]:
    """Collect what is logged as an error by the root logger, which the official client uses, and do not print it."""
    found: list[str] = []

    class _Collect(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if record.levelno < logging.ERROR:
                return True
            found.append(record.getMessage())
            return False

    collect, root = _Collect(), logging.getLogger()
    root.addFilter(collect)
    try:
        yield found
    finally:
        root.removeFilter(collect)


def _not_installed() -> NotFound:
    return NotFound(
        "the cluster does not know StreamApps: millpond's custom resource definitions are not installed there. "
        "Install them, or check which cluster the kubeconfig's context names."
    )


def _lines(response: HTTPResponse) -> Iterator[bytes]:
    """Yield lines as they arrive; a connection that breaks ends them."""
    from urllib3.exceptions import HTTPError

    rest = b""
    try:
        while chunk := response.read1():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
    except (HTTPError, OSError):
        pass  # the caller looks whether the pod still runs
    if rest:
        yield rest


def _ordinal(name: str) -> tuple[int, str]:
    number = name.rpartition("-")[2]
    return (int(number), name) if number.isdecimal() else (-1, name)


def _brief(error: object) -> str:
    """Return an error in one line, without addresses of Python objects."""
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>(, |: )?", "", " ".join(str(error).split()))
    return text.rstrip(".")[:300]
