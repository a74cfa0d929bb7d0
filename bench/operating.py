"""An operator to measure, with a real API server and etcd on the same cores; no nodes, no other controllers."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.api import Api
from tests.cluster.apiserver import ApiServer, SharedApiServer
from tests.cluster.background import Background
from tests.cluster.installing import install_crds
from tests.operating.operators import grant_rights
from tests.operating.process import OperatorProcess

__all__ = ("Setting", "operating")

_CRDS = Path(__file__).parents[1] / "crds"
#: The operator's defaults; tests use shorter times.
_LEASE = {
    "LEASE_DURATION": "15s",
    "LEASE_RENEW_DEADLINE": "10s",
    "LEASE_RETRY_PERIOD": "2s",
    "REQUEST_TIMEOUT": "10s",
}


@dataclass(frozen=True)
class Setting:
    """The parts of a bench."""

    server: SharedApiServer
    operator: OperatorProcess
    directory: Path
    """The directory of the run's files; the ends of its `.log` files are printed if the run fails."""


@contextlib.contextmanager
def operating(namespace: str, settings: Mapping[str, str], **options: str) -> Iterator[Setting]:
    """Run an operator that leads while the block runs; if the block fails, print the ends of all logs.

    Args:
        namespace: its namespace, which is created.
        settings: settings of the operator, in addition to those of its lease.
        options: options of `OperatorProcess`.

    Raises:
        BinariesMissing: the API server is not installed.
    """
    with (
        tempfile.TemporaryDirectory(prefix="millpond-bench-") as name,
        ApiServer(controllers=False) as server,
        Background() as background,
        Api(background, server.admin) as api,
    ):
        directory = Path(name)
        install_crds(api, _CRDS)
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        grant_rights(api, namespace)
        with OperatorProcess(api, server.admin, namespace, directory, _LEASE | dict(settings), **options) as operator:
            operator.await_leading()
            try:
                yield Setting(server, operator, directory)
            except BaseException:
                print(operator.tail(30), file=sys.stderr)
                for log in directory.glob("*.log"):
                    print(f"{log.name}:\n" + "\n".join(log.read_text().splitlines()[-10:]), file=sys.stderr)
                raise
