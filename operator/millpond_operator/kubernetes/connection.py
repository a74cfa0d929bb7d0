"""How to reach the API server and as whom: from a kubeconfig, or from what every pod finds in its file system."""

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
#: The kubelet replaces a pod's token long before it expires; client-go reads it again as often.
_TOKEN_AGE_S = 60.0
_USER_AGENT = "millpond-operator"
_KEPT_ALIVE_S = 60.0


class ServiceAccountToken:
    """A bearer token in a file that is replaced now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_at = -_TOKEN_AGE_S

    def __call__(self) -> str:
        """The token of now, or the last that could be read."""
        now = clock.monotonic()
        if now - self._read_at >= _TOKEN_AGE_S or not self._token:
            try:
                self._token = self._path.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                if not self._token:
                    raise ConfigError(f"The token file '{self._path}' cannot be read: {error}.") from error
            self._read_at = now
        return self._token

    def again(self) -> None:
        """Read the file at the next use: the API server did not like the token."""
        self._read_at = -_TOKEN_AGE_S


@dataclass(frozen=True)
class Connection:
    """Where the API server is, whom to trust, and who asks. Nothing of it is shown by `repr`."""

    server: str
    """Base URL."""
    ca: bytes | None = None
    """Certificates to trust, PEM. None: those of the system."""
    verify: bool = True
    """Whether the API server's certificate is checked."""
    server_name: str | None = None
    """The name to check it for, when it is not that in the URL."""
    certificate: bytes | None = None
    """The client's certificate chain, PEM."""
    key: bytes | None = None
    """Its private key, PEM."""
    token: str | None = None
    """A bearer token that never changes."""
    token_file: ServiceAccountToken | None = None
    """One that does; wins over `token`."""
    namespace: str = "default"
    """The namespace of the pod, or of the kubeconfig's context."""

    def __repr__(self) -> str:
        return f"Connection({self.server!r}, namespace={self.namespace!r})"

    @staticmethod
    def find(kubeconfig: str | None = None, environ: Mapping[str, str] = os.environ) -> Connection:
        """The kubeconfig that is named, else that of `$KUBECONFIG`, else the pod's own, else `~/.kube/config`.

        Raises:
            ConfigError: there is none, or it cannot be used.
        """
        named = kubeconfig or environ.get("KUBECONFIG", "").split(os.pathsep)[0]
        if named:
            return Connection.from_kubeconfig(Path(named))
        if environ.get("KUBERNETES_SERVICE_HOST"):
            return Connection.in_cluster(environ)
        home = Path(environ.get("HOME", "/")) / ".kube" / "config"
        if home.exists():
            return Connection.from_kubeconfig(home)
        raise ConfigError("No API server is known: run inside a cluster, or name a kubeconfig in KUBECONFIG.")

    @staticmethod
    def in_cluster(environ: Mapping[str, str] = os.environ, directory: Path = _SERVICE_ACCOUNT) -> Connection:
        """From the files of the pod's service account.

        Raises:
            ConfigError: they are not there.
        """
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        token = ServiceAccountToken(directory / "token")
        token()
        try:
            ca = (directory / "ca.crt").read_bytes()
            namespace = (directory / "namespace").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"The service account's files in '{directory}' cannot be read: {error}; "
                "let the pod have its token (automountServiceAccountToken: true)."
            ) from error
        address = f"[{host}]" if ":" in host else host
        return Connection(f"https://{address}:{port}", ca=ca, token_file=token, namespace=namespace)

    @staticmethod
    def from_kubeconfig(path: Path, context: str | None = None) -> Connection:
        """From a kubeconfig.

        Args:
            path: of the file.
            context: one of its contexts; None for the current one.

        Raises:
            ConfigError: it cannot be read, or asks for a way to log in that is not supported.
        """
        try:
            config = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"The kubeconfig '{path}' cannot be read: {error}.") from error
        if not isinstance(config, dict):
            raise ConfigError(f"The kubeconfig '{path}' is empty.")
        current = _named(path, config, "contexts", context or config.get("current-context") or "", "context")
        cluster = _named(path, config, "clusters", current.get("cluster", ""), "cluster")
        user = _named(path, config, "users", current["user"], "user") if current.get("user") else {}
        for unsupported in ("exec", "auth-provider"):
            if user.get(unsupported):
                raise ConfigError(
                    f"The kubeconfig '{path}' logs in by {unsupported}, which is not supported: "
                    "use a token or a client certificate, for example of a service account."
                )
        server = str(cluster.get("server", "")).rstrip("/")
        if not server:
            raise ConfigError(f"The kubeconfig '{path}' names no server for its cluster: add `server: https://...`.")
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
        """The token to send now; None for none."""
        return self.token_file() if self.token_file is not None else self.token

    def session(
        self, timeout: timedelta | None = None, middlewares: Sequence[aiohttp.ClientMiddlewareType] = ()
    ) -> aiohttp.ClientSession:
        """A new HTTP session with the credentials of now and, in its time, of later.

        Args:
            timeout: for one request; None for none.
            middlewares: see every request and its answer.

        Raises:
            ConfigError: a certificate or the key is not what it should be.
        """

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            if (token := self.bearer()) is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            return await handler(request)

        return aiohttp.ClientSession(
            connector=_Connector(limit=0, ssl=self.ssl_context() or False, keepalive_timeout=_KEPT_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=timeout.total_seconds() if timeout is not None else None),
            # Compressing costs the API server more than the network saves.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": _USER_AGENT},
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(*middlewares, authorize) if self.token_file or self.token else tuple(middlewares),
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        """What TLS needs; None when the API server does without.

        Raises:
            ConfigError: a certificate or the key is not what it should be.
        """
        if not self.server.startswith("https:"):
            return None
        try:
            context = _Context(ssl.PROTOCOL_TLS_CLIENT)
            context.server_name = self.server_name
            if self.ca:
                context.load_verify_locations(cadata=self.ca.decode("ascii"))
            else:
                context.load_default_certs()
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None and self.key is not None:
                with tempfile.TemporaryDirectory(prefix="millpond-") as directory:  # ssl reads keys from files only
                    chain = Path(directory) / "client.pem"
                    chain.touch(mode=0o600)
                    chain.write_bytes(self.certificate.rstrip() + b"\n" + self.key)
                    context.load_cert_chain(chain)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"The certificates for {self.server} cannot be used: {error}.") from error
        return context


class _Connector(aiohttp.TCPConnector):
    """Closes connections when it is closed: TLS would otherwise wait for the other side to agree, which may be away."""

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
        await asyncio.sleep(0)  # the event loop does the rest


class _Context(ssl.SSLContext):
    """Asks the server for the name that the kubeconfig says, whatever its URL is."""

    server_name: str | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name or server_hostname, session)


def _named(path: Path, config: dict[str, Any], section: str, name: str, field: str) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if entry.get("name") == name:
            return dict(entry.get(field) or {})
    raise ConfigError(f"The kubeconfig '{path}' has no {field} named '{name}'.")


def _content(path: Path, section: Mapping[str, Any], field: str) -> bytes | None:
    if encoded := section.get(f"{field}-data"):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{field}-data in the kubeconfig '{path}' is not base64.") from error
    if named := section.get(field):
        try:
            return (path.parent / str(named)).read_bytes()
        except OSError as error:
            raise ConfigError(f"The {field} in the kubeconfig '{path}' cannot be read: {error}.") from error
    return None
