"""An operator to measure: its process beside a real API server and etcd, on the same cores; no nodes, no controllers."""

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
#: The operator's defaults, which tests shorten.
_LEASE = {
    "LEASE_DURATION": "15s",
    "LEASE_RENEW_DEADLINE": "10s",
    "LEASE_RETRY_PERIOD": "2s",
    "REQUEST_TIMEOUT": "10s",
}


@dataclass(frozen=True)
class Setting:
    """What a bench works with."""

    server: SharedApiServer
    operator: OperatorProcess
    directory: Path
    """For files of the run; what ends with `.log` in it is shown when the run fails."""


@contextlib.contextmanager
def operating(namespace: str, settings: Mapping[str, str], **options: str) -> Iterator[Setting]:
    """Run an operator that leads as long as the block; when the block fails, print the ends of all logs.

    Args:
        namespace: where it works, which is made.
        settings: of the operator, beside those of its lease.
        options: of `OperatorProcess`.

    Raises:
        BinariesMissing: there is no API server.
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
