"""A real Kubernetes API server with etcd, and the controllers that need no nodes: one for a process of a test run.

    with ApiServer() as server:
        ...  # server.admin is access with all rights, Api(server.admin) a client

Users are client certificates (`ApiServer.user`) and service accounts (TokenRequest and TokenReview work), with RBAC.
The
controller manager creates pods of StatefulSets and Jobs, service accounts and EndpointSlices, and collects garbage.
There is no scheduler and no kubelet: `tests.cluster.nodes.kubelets` simulates them.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from millpond.broker import watchdog
from millpond.errors import MillpondError
from tests.cluster import audit, binaries
from tests.cluster.certificates import Access, Authority, service_account_key
from tests.support import freezing, set_up
from tests.support.broker import free_port

__all__ = ("ApiServer", "SharedApiServer")

HOST = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc"
CONTROLLERS = (
    "statefulset-controller",
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "endpointslice-controller",
    "disruption-controller",
    "clusterrole-aggregation-controller",
    "persistentvolumeclaim-protection-controller",
)
_POLL_S = 0.02
#: Memory is cheaper here than the time of the garbage collector.
_GO = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
_ATTEMPTS = 3  # another program may take a free port before the API server binds it
_LOG_LINES = 5


class ApiServerError(MillpondError):
    """The API server did not start."""


class SharedApiServer:
    """An API server that tests may use but must not stop.

    Attributes:
        url: of the API server.
        directory: of its certificates and logs.
        authority: signed its certificates and those of its users.
        admin: access with all rights.
    """

    def __init__(self, directory: Path, url: str) -> None:
        self.url = url
        self.directory = directory
        self.authority = Authority(directory)
        self.admin = self.user("admin", "system:masters")

    def user(self, name: str, group: str | None = None) -> Access:
        """Access of a user with the permissions that RBAC gives."""
        return Access(self.url, self.authority.ca_file, self.authority.client(name, group))

    def service_account(self, token: str) -> Access:
        """Access with a token from TokenRequest."""
        return Access(self.url, self.authority.ca_file, token=token)


class ApiServer:
    """etcd, kube-apiserver and kube-controller-manager, which run as long as the `with` block.

    They end with the process they serve, even when that one is killed with SIGKILL.

    Args:
        controllers: whether to run a controller manager.
        start_timeout_s: how long a start may take.
        owner_pid: they end with this process; this one by default.

    Raises:
        BinariesMissing: their programs are not found.
        ApiServerError: one of them does not start.
    """

    def __init__(
        self, *, controllers: bool = True, start_timeout_s: float = 60.0, owner_pid: int | None = None
    ) -> None:
        self._controllers = controllers
        self._start_timeout_s = start_timeout_s
        self._owner_pid = owner_pid if owner_pid is not None else os.getpid()
        self._programs = binaries.find()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watchdogs: list[subprocess.Popen[bytes]] = []
        self._directory: Path | None = None
        self._late = ""  # the end of the log of an API server that was not ready in time

    def __enter__(self) -> SharedApiServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> SharedApiServer:
        """Start all of them, and wait until they respond; begin once more if that takes too long.

        Raises:
            SetUpError: it took too long a second time, too.
        """
        return set_up.twice(self._start_anywhere, log=lambda: self._late)

    def _start_anywhere(self) -> SharedApiServer:
        for attempt in range(_ATTEMPTS):
            self._directory = Path(tempfile.mkdtemp(prefix="millpond-apiserver-"))
            try:
                return self._start(self._directory)
            except ApiServerError:
                self.close()
                if attempt == _ATTEMPTS - 1:
                    raise
            except BaseException:
                self.close()
                raise
        raise AssertionError

    def close(self) -> None:
        """Stop all of them, and delete their data."""
        for process in self._processes.values():
            process.kill()  # nothing that they hold matters any more
        for process in [*self._processes.values(), *self._watchdogs]:
            process.wait()
        self._processes, self._watchdogs = {}, []
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    @contextlib.contextmanager
    def frozen(self, name: str = binaries.API_SERVER) -> Iterator[None]:
        """Freeze a process for a while, like a hanging machine."""
        process = self._processes[name]
        freezing.freeze(process)
        try:
            yield
        finally:
            freezing.thaw(process)

    def pid(self, name: str = binaries.API_SERVER) -> int:
        """The pid of one of the processes."""
        return self._processes[name].pid

    def _start(self, directory: Path) -> SharedApiServer:
        authority = Authority(directory)
        certificate = authority.server("kube-apiserver", HOST, "localhost", "kubernetes.default.svc")
        key = service_account_key(directory / "service-accounts.key")
        etcd_port, port = free_port(), free_port()
        server = SharedApiServer(directory, f"https://{HOST}:{port}")
        deadline = time.monotonic() + self._start_timeout_s
        etcd = f"http://{HOST}:{etcd_port}"
        self._run(
            binaries.ETCD,
            f"--data-dir={directory / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://{HOST}:0",
            "--log-level=error",
        )
        self._run(
            binaries.API_SERVER,
            f"--etcd-servers={etcd}",
            f"--bind-address={HOST}",
            f"--secure-port={port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={certificate}",
            f"--client-ca-file={authority.ca_file}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--authorization-mode=RBAC",
            # As OpenShift has it: whoever sets blockOwnerDeletion needs a right to the owner's finalizers.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            f"--audit-policy-file={audit.write_policy(directory)}",
            f"--audit-log-path={directory / audit.LOG}",
            "--audit-log-mode=blocking",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
        )
        self._await_ready(server, deadline)
        if self._controllers:
            self._run(
                binaries.CONTROLLER_MANAGER,
                f"--kubeconfig={server.admin.write_kubeconfig(directory / 'controllers.kubeconfig')}",
                f"--controllers={','.join(CONTROLLERS)}",
                f"--root-ca-file={authority.ca_file}",
                f"--service-account-private-key-file={key}",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=1000",  # they are no part of what is measured
                "--kube-api-burst=2000",
                "--profiling=false",
            )
        return server

    def _run(self, name: str, *arguments: str) -> None:
        assert self._directory is not None
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [self._programs[name], *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=os.environ | _GO,
                process_group=0,
            )
        self._processes[name] = process
        guarded = [str(self._owner_pid), str(process.pid), *([str(self._directory)] if name == binaries.ETCD else [])]
        self._watchdogs.append(
            subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, *guarded],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    def _await_ready(self, server: SharedApiServer, deadline: float) -> None:
        address = urlsplit(server.url)
        tls = server.admin.ssl_context()
        while True:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ApiServerError(f"{name} ended while it was starting; the end of its log:\n{self._end(name)}")
            if time.monotonic() > deadline:
                self._late = self._end(binaries.API_SERVER)
                raise set_up.Late(f"kube-apiserver was not ready within {self._start_timeout_s:g} s")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPSConnection(address.netloc, timeout=5, context=tls)
                try:
                    connection.request("GET", "/readyz")
                    if connection.getresponse().status == http.HTTPStatus.OK:
                        return
                finally:
                    connection.close()
            time.sleep(_POLL_S)

    def _end(self, name: str) -> str:
        assert self._directory is not None
        lines = (self._directory / f"{name}.log").read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-_LOG_LINES:])
