"""The API server in memory."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from aiohttp import web

from tests.cluster.certificates import Access as ClusterAccess
from tests.cluster.certificates import Authority
from tests.cluster.memory.access import Access, roles
from tests.cluster.memory.controllers.base import Cluster, Controller
from tests.cluster.memory.controllers.budgets import Budgets
from tests.cluster.memory.controllers.definitions import Definitions
from tests.cluster.memory.controllers.garbage import GarbageCollector
from tests.cluster.memory.controllers.jobs import Jobs
from tests.cluster.memory.controllers.namespaces import NamespaceContents, Namespaces
from tests.cluster.memory.controllers.protection import ClaimProtection
from tests.cluster.memory.controllers.stateful_sets import StatefulSets
from tests.cluster.memory.kinds import Kinds
from tests.cluster.memory.resources import Options, Resources
from tests.cluster.memory.serving import Front
from tests.cluster.memory.store import Store
from tests.cluster.memory.tokens import Tokens
from tests.cluster.memory.watching import Watches

__all__ = ("MemoryApiServer", "SharedMemoryApiServer")

T = TypeVar("T")
_HOST = "127.0.0.1"
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class _Background(Protocol):
    loop: asyncio.AbstractEventLoop

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float = ...) -> T: ...


class SharedMemoryApiServer:
    """The server for tests; the same interface as `tests.cluster.apiserver.SharedApiServer`.

    Attributes:
        url: of the API server.
        directory: of certificates.
        authority: of certificates that tests make; the server itself uses plain HTTP.
        admin: access with all rights.
    """

    def __init__(self, url: str, directory: Path, authority: Authority, tokens: Tokens) -> None:
        self.url = url
        self.directory = directory
        self.authority = authority
        self._tokens = tokens
        self.admin = self.user("admin", "system:masters")

    def user(self, name: str, group: str | None = None) -> ClusterAccess:
        """Access of a user with the permissions that RBAC gives."""
        return ClusterAccess(self.url, self.authority.ca_file, token=self._tokens.of_user(name, group))

    def service_account(self, token: str) -> ClusterAccess:
        """Access with a token from TokenRequest."""
        return ClusterAccess(self.url, self.authority.ca_file, token=token)


class MemoryApiServer:
    """The server, as long as the `with` block.

    Args:
        background: its event loop.
        controllers: whether to run controllers.
        now: the clock of time stamps.
    """

    def __init__(
        self,
        background: _Background,
        *,
        controllers: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._background = background
        self._with_controllers = controllers
        self._directory = Path(tempfile.mkdtemp(prefix="millpond-memory-"))
        self._authority = Authority(self._directory)
        self.store = Store()
        self.kinds = Kinds()
        self.resources = Resources(self.store, self.kinds, now)
        self.tokens = Tokens(self.store, self.kinds, now)
        self.access = Access(self.store, self.kinds)
        self.controllers: list[Controller] = []
        self._watches: Watches | None = None
        self._runner: web.ServerRunner | None = None

    def __enter__(self) -> SharedMemoryApiServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> SharedMemoryApiServer:
        """Listen."""
        url = self._background.call(self._start())
        return SharedMemoryApiServer(url, self._directory, self._authority, self.tokens)

    def close(self) -> None:
        """Stop, and delete everything."""
        self._background.call(self._stop())
        shutil.rmtree(self._directory, ignore_errors=True)

    def compact(self) -> None:
        """Delete all versions but the present ones: requests for older ones get 410 Gone."""
        self._background.call(self._compact())

    async def _compact(self) -> None:
        self.store.compact()

    async def _start(self) -> str:
        loop = asyncio.get_running_loop()
        cluster = Cluster(self.resources, loop)
        self.controllers = [Definitions(cluster)]
        if self._with_controllers:
            self.controllers += [
                NamespaceContents(cluster, self._authority.ca_file),
                Namespaces(cluster),
                GarbageCollector(cluster),
                ClaimProtection(cluster),
                StatefulSets(cluster),
                Jobs(cluster),
                Budgets(cluster),
            ]
        for name in _NAMESPACES:
            namespace = {"metadata": {"name": name}}
            self.resources.create(cluster.kind("Namespace"), "", namespace, Options("kube-apiserver"))
        for role in roles():
            self.resources.create(cluster.kind("ClusterRole"), "", role, Options("kube-apiserver"))
        self._watches = Watches(self.store)
        self.kinds.listen(self._watches.end_of)
        front = Front(self.store, self.kinds, self.resources, self._watches, self.tokens, self.access)
        self._runner = web.ServerRunner(
            web.Server(front, handler_cancellation=True, access_log=None), shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, _HOST, 0).start()
        return f"http://{_HOST}:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        for controller in self.controllers:
            controller.close()
        if self._watches is not None:
            self._watches.end()
        if self._runner is not None:
            await self._runner.cleanup()
