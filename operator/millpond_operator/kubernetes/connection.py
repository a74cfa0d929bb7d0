"""Address and credentials for the API server: from a kubeconfig, or from the service account of a pod."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp.tracing import Trace

from millpond.errors import ConfigError
from millpond.protocol import clock

__all__ = ("Connection",)

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: How long a token is used before its file is read again, as client-go does; the kubelet replaces it long before it
#: expires.
_TOKEN_AGE_S = 60.0
_USER_AGENT = "millpond-operator"
_KEEP_ALIVE_S = 60.0


class ServiceAccountToken:
    """A bearer token in a file that is replaced from time to time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_at = -_TOKEN_AGE_S

    def __call__(self) -> str:
        """Return the current token, or the last one that could be read."""
        now = clock.monotonic()
        if now - self._read_at >= _TOKEN_AGE_S or not self._token:
            try:
                self._token = self._path.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                if not self._token:
                    raise ConfigError(
                        f"Cannot read the token file '{self._path}': {error}. Correct its path."
                    ) from error
            self._read_at = now
        return self._token

    def expire(self) -> None:
        """Read the file again at the next use: the API server rejected the token."""
        self._read_at = -_TOKEN_AGE_S


@dataclass(frozen=True)
class Connection:
    """Address, trusted certificates and credentials. `repr` shows no secret."""

    server: str
    """Base URL."""
    ca: bytes | None = None
    """Trusted certificates, PEM. None: the system's."""
    verify: bool = True
    """Whether to verify the API server's certificate."""
    server_name: str | None = None
    """The name in the certificate, if it is not the host in the URL."""
    certificate: bytes | None = None
    """The client's certificate chain, PEM."""
    key: bytes | None = None
    """The certificate's private key, PEM."""
    token: str | None = None
    """A bearer token that never changes."""
    token_file: ServiceAccountToken | None = None
    """A bearer token that changes; takes precedence over `token`."""
    namespace: str = "default"
    """The namespace of the pod, or of the kubeconfig's context."""

    def __repr__(self) -> str:
        return f"Connection({self.server!r}, namespace={self.namespace!r})"

    @staticmethod
    def find(kubeconfig: str | None = None, environ: Mapping[str, str] = os.environ) -> Connection:
        """Use the given kubeconfig, else `$KUBECONFIG`, else the pod's service account, else `~/.kube/config`.

        Raises:
            ConfigError: none of them exists, or the first one cannot be used.
        """
        named = kubeconfig or environ.get("KUBECONFIG", "").split(os.pathsep)[0]
        if named:
            return Connection.from_kubeconfig(Path(named))
        if environ.get("KUBERNETES_SERVICE_HOST"):
            return Connection.in_cluster(environ)
        home = Path(environ.get("HOME", "/")) / ".kube" / "config"
        if home.exists():
            return Connection.from_kubeconfig(home)
        raise ConfigError("No API server is configured: run inside a cluster, or set KUBECONFIG.")

    @staticmethod
    def in_cluster(environ: Mapping[str, str] = os.environ, directory: Path = _SERVICE_ACCOUNT) -> Connection:
        """Use the files of the pod's service account.

        Raises:
            ConfigError: they cannot be read.
        """
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        token = ServiceAccountToken(directory / "token")
        token()
        try:
            ca = (directory / "ca.crt").read_bytes()
            namespace = (directory / "namespace").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"Cannot read the service account's files in '{directory}': {error}. "
                "Set automountServiceAccountToken: true in the pod."
            ) from error
        address = f"[{host}]" if ":" in host else host
        return Connection(f"https://{address}:{port}", ca=ca, token_file=token, namespace=namespace)

    @staticmethod
    def from_kubeconfig(path: Path, context: str | None = None) -> Connection:
        """Use a kubeconfig.

        Args:
            path: of the file.
            context: one of its contexts; None for the current one.

        Raises:
            ConfigError: the file cannot be read, or uses a login that is not supported.
        """
        try:
            config = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"Cannot read the kubeconfig '{path}': {error}. Correct it, or KUBECONFIG.") from error
        if not isinstance(config, dict):
            raise ConfigError(f"The kubeconfig '{path}' is empty: set KUBECONFIG to another file.")
        current = _entry(path, config, "contexts", context or config.get("current-context") or "", "context")
        cluster = _entry(path, config, "clusters", current.get("cluster", ""), "cluster")
        user = _entry(path, config, "users", current["user"], "user") if current.get("user") else {}
        for unsupported in ("exec", "auth-provider"):
            if user.get(unsupported):
                raise ConfigError(
                    f"The kubeconfig '{path}' uses the login '{unsupported}', which is not supported: "
                    "use a token or a client certificate, for example of a service account."
                )
        server = str(cluster.get("server", "")).rstrip("/")
        if not server:
            raise ConfigError(f"The kubeconfig '{path}' has no server for its cluster: add `server: https://...`.")
        return Connection(
            server,
            ca=_content(path, cluster, "certificate-authority"),
            verify=not cluster.get("insecure-skip-tls-verify", False),
            server_name=cluster.get("tls-server-name"),
            certificate=_content(path, user, "client-certificate"),
            key=_content(path, user, "client-key"),
            token=user.get("token"),
            token_file=ServiceAccountToken(path.parent / user["tokenFile"]) if user.get("tokenFile") else None,
            namespace=current.get("namespace") or "default",
        )

    def bearer(self) -> str | None:
        """Return the current bearer token; None for none."""
        return self.token_file() if self.token_file is not None else self.token

    def session(
        self, timeout: timedelta | None = None, middlewares: Sequence[aiohttp.ClientMiddlewareType] = ()
    ) -> aiohttp.ClientSession:
        """Return a new HTTP session, which always uses the current credentials.

        Args:
            timeout: of one request; None for none.
            middlewares: see every request and its response.

        Raises:
            ConfigError: a certificate or the key is invalid.
        """

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            if (token := self.bearer()) is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            return await handler(request)

        return aiohttp.ClientSession(
            connector=_AbortingConnector(limit=0, ssl=self.ssl_context() or False, keepalive_timeout=_KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=timeout.total_seconds() if timeout is not None else None),
            # Compressing costs the API server more than the network saves.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": _USER_AGENT},
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(*middlewares, authorize) if self.token_file or self.token else tuple(middlewares),
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None for plain HTTP.

        Raises:
            ConfigError: a certificate or the key is invalid.
        """
        if not self.server.startswith("https:"):
            return None
        try:
            context = _ServerNameContext(ssl.PROTOCOL_TLS_CLIENT)
            context.server_name = self.server_name
            if self.ca:
                context.load_verify_locations(cadata=self.ca.decode("ascii"))
            else:
                context.load_default_certs()
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None and self.key is not None:
                with tempfile.TemporaryDirectory(prefix="millpond-") as directory:  # ssl reads keys only from files
                    chain = Path(directory) / "client.pem"
                    chain.touch(mode=0o600)
                    chain.write_bytes(self.certificate.rstrip() + b"\n" + self.key)
                    context.load_cert_chain(chain)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"Cannot use the certificates for {self.server}: {error}.") from error
        return context


class _AbortingConnector(aiohttp.TCPConnector):
    """Aborts connections on close: TLS would otherwise wait for an answer of the API server, which may be down."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._opened: weakref.WeakKeyDictionary[asyncio.Transport, None] = weakref.WeakKeyDictionary()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the base class's
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:
            self._opened[connection.transport] = None
        return connection

    async def close(self, *, abort_ssl: bool = False) -> None:
        for transport in tuple(self._opened):
            transport.abort()
        await super().close(abort_ssl=True)
        await asyncio.sleep(0)  # let the event loop close the sockets


class _ServerNameContext(ssl.SSLContext):
    """Expects the server name of the kubeconfig, whatever the URL is."""

    server_name: str | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - the base class's signature
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name or server_hostname, session)


def _entry(path: Path, config: dict[str, Any], section: str, name: str, field: str) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if entry.get("name") == name:
            return dict(entry.get(field) or {})
    raise ConfigError(f"The kubeconfig '{path}' has no {field} named '{name}': add it, or correct the name.")


def _content(path: Path, section: Mapping[str, Any], field: str) -> bytes | None:
    if encoded := section.get(f"{field}-data"):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{field}-data in the kubeconfig '{path}' is not base64: correct it.") from error
    if named := section.get(field):
        try:
            return (path.parent / str(named)).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"Cannot read the {field} of the kubeconfig '{path}': {error}. Correct the path."
            ) from error
    return None
