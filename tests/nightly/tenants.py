"""Two tenants with equal names, one of them hostile: `python -m tests.nightly.tenants --seconds 600 --seed 1`.

Both have a StreamApp with the same name, the same application id and the same short name of their Kafka, each in its
own namespace of a real API server. The hostile one changes, breaks and deletes its own objects and attacks the
coordinator. Meanwhile the other one must not be affected: no pause of a task, no changed condition, no changed or
recreated object.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.hostile.attack import Attack
from bench.hostile.tenants import AUDIENCE, TenantWorker
from millpond.protocol import clock
from tests.cluster.api import Api, ApiFailure, Object
from tests.cluster.apiserver import ApiServer
from tests.cluster.background import Background
from tests.cluster.installing import install_crds
from tests.cluster.nodes.images import Image, topology
from tests.cluster.nodes.kubelets import Kubelets
from tests.cluster.waiting import sleep, unchanged, wait_for
from tests.operating.operators import grant_rights
from tests.operating.process import OperatorProcess

_CRDS = Path(__file__).parents[2] / "crds"
_SYSTEM, _GOOD, _HOSTILE = "system", "good", "hostile"
_APP, _TASKS, _REPLICAS = "delays", 6, 2
_ACT_S = 2.0
_KINDS = (
    "StatefulSet", "Pod", "Service", "ServiceAccount", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy",
    "PersistentVolumeClaim", "ControllerRevision", "StreamAssignment",
)  # fmt: skip
_SPEC = {
    "image": "delays:1",
    "topology": "app:delays",
    "replicas": _REPLICAS,
    "standbyReplicas": 1,
    "kafka": {"bootstrapServers": "kafka:9092"},
    "rollout": {"minReady": "1s"},
}


class Other:
    """The tenant that must not be affected.

    Attributes:
        noticed: effects on it, one sentence each.
    """

    def __init__(self, api: Api, kubelets: Kubelets) -> None:
        self.noticed: list[str] = []
        self._api = api
        self._streams = kubelets.streams(_GOOD, _APP)

    def settle(self) -> None:
        """Wait until it runs and has settled, and remember its objects."""
        wait_for(lambda: runs(self._api, _GOOD) and len(self._streams.running()) == _TASKS, f"{_GOOD} runs")
        self._objects = unchanged(self._all, f"the objects of {_GOOD}")
        self._conditions = self._told()
        self._streams.pauses.clear()
        self._streams.fenced.clear()
        self._events = {each["metadata"]["uid"] for each in self._api.list("Event", _GOOD)}

    async def watch(self) -> None:
        """Note each condition that changes, until cancelled."""

        async def seen(_change: str, app: Object) -> None:
            found = _conditions(app)
            if found != self._conditions:
                self.noticed.append(f"conditions became {sorted(found - self._conditions)}")

        await self._api.inside.follow("StreamApp", seen, _GOOD)

    def compare(self) -> None:
        """Note all differences from the remembered state."""
        streams = self._streams
        self.noticed += [
            f"{each.task} was not processed for {each.seconds:.1f} s: {each.why}" for each in streams.pauses
        ]
        self.noticed += [f"{task} stands still" for task in streams.standing_still()]
        self.noticed += [f"{task} was taken from {worker}" for task, worker in streams.fenced]
        self.noticed += streams.violations
        now = self._all()
        changed = [key for key in self._objects.keys() | now.keys() if self._objects.get(key) != now.get(key)]
        self.noticed += [f"{kind} {name} changed" for kind, name in sorted(changed)]
        for event in self._api.list("Event", _GOOD):
            if event["metadata"]["uid"] not in self._events:
                self.noticed.append(f"there is an event {event['reason']}: {event.get('message', '')}")

    def _told(self) -> frozenset[tuple[str, str, str]]:
        return _conditions(self._api.get("StreamApp", _GOOD, _APP))

    def _all(self) -> dict[tuple[str, str], tuple[str, Any]]:
        """Return its objects by kind and name: their uid and specification."""
        return {
            (kind, each["metadata"]["name"]): (
                each["metadata"]["uid"],
                each.get("spec") or each.get("data") or each["metadata"].get("labels"),
            )
            for kind in _KINDS
            for each in self._api.list(kind, _GOOD)
        }


class Hostile:
    """The hostile tenant, which changes its own objects at random."""

    def __init__(self, api: Api, kubelets: Kubelets, chance: random.Random) -> None:
        self._api = api
        self._kubelets = kubelets
        self._chance = chance
        self.acts = 0

    def act(self) -> None:
        """Perform one random action."""
        acts: list[Callable[[], object]] = [
            lambda: self._change(replicas=self._chance.randint(0, 5)),
            lambda: self._change(standbyReplicas=self._chance.randint(0, 2)),
            lambda: self._change(image=self._chance.choice(["delays:1", "delays:2", "delays:bad", "nowhere:1"])),
            lambda: self._change(suspend=self._chance.random() < 0.5),
            lambda: self._delete("StatefulSet"),
            lambda: self._delete("StreamAssignment"),
            lambda: self._delete("ConfigMap"),
            lambda: self._delete("Pod"),
            lambda: self._delete("StreamApp"),
            self._kill,
        ]
        with contextlib.suppress(ApiFailure, LookupError):  # it did not exist
            self._chance.choice(acts)()
        self.acts += 1
        if self._api.find("StreamApp", _HOSTILE, _APP) is None:
            create_app(self._api, _HOSTILE)

    def _change(self, **spec: Any) -> None:
        self._api.patch("StreamApp", _HOSTILE, _APP, {"spec": spec})

    def _delete(self, kind: str) -> None:
        found = self._api.list(kind, _HOSTILE, f"millpond.dev/app={_APP}" if kind != "StreamApp" else None)
        self._api.delete(kind, _HOSTILE, self._chance.choice(found)["metadata"]["name"])

    def _kill(self) -> None:
        workers = sorted(self._kubelets.workers(_HOSTILE))
        if workers:
            self._kubelets.kill(_HOSTILE, self._chance.choice(workers))


def create_app(api: Api, namespace: str) -> None:
    """Return the StreamApp of both tenants."""
    metadata = {"name": _APP, "namespace": namespace}
    api.apply({"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp", "metadata": metadata, "spec": _SPEC})


def runs(api: Api, namespace: str) -> bool:
    """Return whether a tenant's application is Ready with all its workers."""
    status = api.get("StreamApp", namespace, _APP).get("status", {})
    ready = ("Ready", "True") in {(each["type"], each["status"]) for each in status.get("conditions", ())}
    return ready and status.get("workers") == f"{_REPLICAS}/{_REPLICAS}"


def _conditions(app: Object) -> frozenset[tuple[str, str, str]]:
    found = app.get("status", {}).get("conditions", ())
    return frozenset((each["type"], each["status"], each["reason"]) for each in found)


def _worker(api: Api, namespace: str) -> TenantWorker:
    """Return one of a tenant's workers, with a token."""
    name = f"{_APP}-0"
    pod = api.get("Pod", namespace, name)
    return TenantWorker(namespace, _APP, name, api.token(namespace, _APP, AUDIENCE, pod))


@contextlib.contextmanager
def attacking(api: Api, operator: OperatorProcess, directory: Path, seconds: float) -> Iterator[None]:
    """Attack the coordinator from another process while the block runs."""
    secret = api.get("Secret", _SYSTEM, "millpond-coordinator-tls")
    attack = Attack(
        port=operator.coordinator_port,
        hostname=f"millpond-coordinator.{_SYSTEM}.svc",
        ca=base64.b64decode(secret["data"]["ca.crt"]).decode(),
        worker=_worker(api, _HOSTILE),
        victim=_worker(api, _GOOD),
        tokens=int(100 * seconds),
        tokens_per_s=100.0,
        idle=300,
        huge=2,
        huge_bytes=8 * 2**20,
    )
    path = directory / "attack.json"
    path.write_bytes(msgspec.json.encode(attack))
    command = [sys.executable, "-m", "bench.hostile.attack", str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    try:
        yield
        out, _ = process.communicate(b"\n", timeout=60)
        print(f"the attack: {out.decode().strip()}")
    finally:
        process.kill()
        process.wait()


def run(seconds: float, seed: int) -> list[str]:
    """Run the hostile tenant for some seconds; return the effects on the other one."""
    with (
        tempfile.TemporaryDirectory(prefix="millpond-tenants-") as directory,
        ApiServer() as server,
        Background() as background,
        Api(background, server.admin) as api,
    ):
        install_crds(api, _CRDS)
        for namespace in (_SYSTEM, _GOOD, _HOSTILE):
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        grant_rights(api, _SYSTEM)
        settings = {"RESYNC_INTERVAL": "30s", "WATCH_PATIENCE": "60s", "REQUEST_TIMEOUT": "10s"}
        with (
            Kubelets(background, server.admin, None, operator_namespace=_SYSTEM) as kubelets,
            OperatorProcess(api, server.admin, _SYSTEM, Path(directory), settings, watch="") as operator,
        ):
            kubelets.images |= {
                "delays:1": Image(topology(_TASKS)),
                "delays:2": Image(topology(_TASKS)),
                "delays:bad": Image(topology(_TASKS, hash="h2", store="others")),
            }
            operator.await_leading()
            for namespace in (_GOOD, _HOSTILE):
                create_app(api, namespace)
            try:
                return _ordeal(api, kubelets, operator, Path(directory), seconds, seed)
            finally:
                print(operator.tail(60))


def _ordeal(
    api: Api, kubelets: Kubelets, operator: OperatorProcess, directory: Path, seconds: float, seed: int
) -> list[str]:
    wait_for(lambda: runs(api, _HOSTILE), f"{_HOSTILE} runs", otherwise=operator.tail)
    other, hostile = Other(api, kubelets), Hostile(api, kubelets, random.Random(seed))
    other.settle()
    watching = api.background.submit(other.watch())
    ends = clock.monotonic() + seconds
    with attacking(api, operator, directory, seconds):
        while clock.monotonic() < ends:
            hostile.act()
            sleep(_ACT_S)
    watching.cancel()
    other.compare()
    if operator.starts != 1 or not operator.alive:
        other.noticed.append("the operator ended")
    print(
        f"{hostile.acts} actions of the hostile tenant in {seconds:.0f} s; "
        f"{len(other.noticed)} effects on the other one"
    )
    return other.noticed


def main() -> int:
    """Run both tenants; exit with status 0 if the other tenant was not affected."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.tenants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of the ordeal")
    parser.add_argument("--seed", type=int, default=1, help="seed of the hostile tenant's actions")
    given = parser.parse_args()
    noticed = run(given.seconds, given.seed)
    print("\n".join(noticed))
    return min(len(noticed), 1)


if __name__ == "__main__":
    sys.exit(main())
