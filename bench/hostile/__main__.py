"""One hostile tenant against all others: `python -m bench.hostile`.

It uses a real API server and etcd, the operator, and 50 StreamApps whose workers send heartbeats over TLS from another
process. First they are alone; then a hostile tenant in a third process sends forged tokens, opens idle connections, and
posts heartbeats of 16 MB, all at once. The run measures

- the delay of answers to the others' heartbeats, before and during the attack;
- whether the operator kept its lease, and the longest time between two renewals;
- the highest memory of the operator.

Everything runs on the same cores, so attackers, fleet and API server take CPU time from the operator.

    python -m bench.hostile apps=50 workers=4 seconds=30 tokens=20000 idle=900 huge=6
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from bench.hostile.attack import Attack
from bench.hostile.fleet import Phase, Plan
from bench.hostile.tenants import TenantWorker, create_app, create_namespace, workers_of
from bench.operating import operating
from bench.options import from_arguments
from millpond.protocol import clock
from tests.cluster.api import ApiFailure, AsyncApi
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.binaries import BinariesMissing
from tests.operating.process import OperatorProcess

__all__ = ("Figures", "Options", "run")

RESULT = Path("build/bench-hostile.json")
_SYSTEM, _HOSTILE = "system", "hostile"
_APPS_PER_NAMESPACE = 5
_AT_ONCE = 8
_SAMPLE_S = 0.25
_MOST_LATE_S, _MOST_MB = 0.25, 400.0


@dataclass(frozen=True)
class Options:
    """The size of the run and of the attack."""

    apps: int = 50
    workers: int = 4
    """Of each application."""
    tasks: int = 8
    """Of each application."""
    calm: int = 10
    """Seconds before the attack."""
    seconds: int = 30
    """Of the attack."""
    tokens: int = 20_000
    idle: int = 900
    huge: int = 6
    huge_mb: int = 16


class Figures(msgspec.Struct, frozen=True):
    """The measurements of a run."""

    apps: int
    workers: int
    calm: Phase
    attacked: Phase
    attack: dict[str, int]
    """Requests of the hostile tenant, and how many were rejected, by kind."""
    refused: dict[str, int]
    """Rejections that the operator counted, by reason."""
    lost_leases: int
    longest_renewal_s: float
    calm_mb: float
    most_mb: float
    connections: int
    """The highest memory during the attack, in megabytes."""
    operator_core_share: float
    """CPU time of the operator during the attack, per second."""
    operator_waited_share: float
    """Time in which the operator waited for a core, per second."""
    load_average: float
    """Load average at the end: above the number of cores, other processes distort the times."""


class _Watch:
    """Observes the operator during the attack."""

    def __init__(self, api: AsyncApi, operator: OperatorProcess) -> None:
        assert operator.process is not None
        self.process = psutil.Process(operator.process.pid)
        self.most_mb = 0.0
        self.connections = 0
        self.longest_renewal_s = 0.0
        self.leaders: set[str] = set()
        self._api = api

    async def poll(self) -> None:
        """Observe until cancelled."""
        renewed, at = "", clock.monotonic()
        while True:
            self.most_mb = max(self.most_mb, self.process.memory_info().rss / 2**20)
            self.connections = max(self.connections, len(self.process.net_connections("tcp")))
            spec = (await self._api.get("Lease", _SYSTEM, "millpond-operator"))["spec"]
            self.leaders.add(spec["holderIdentity"])
            now = clock.monotonic()
            if spec["renewTime"] != renewed:
                renewed, at = spec["renewTime"], now
            self.longest_renewal_s = max(self.longest_renewal_s, now - at)
            await asyncio.sleep(_SAMPLE_S)

    def cpu(self) -> float:
        """Seconds so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def waited(self) -> float:
        """Return the seconds in which its main thread waited for a core; 0 if the system does not report it."""
        try:
            return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9
        except OSError:
            return 0.0


@contextlib.asynccontextmanager
async def _child(module: str, options: msgspec.Struct, directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a child process of this bench while the block runs."""
    path = directory / f"{module}.json"
    path.write_bytes(msgspec.json.encode(options))
    command = (sys.executable, "-m", f"bench.hostile.{module}", str(path))
    with (directory / f"{module}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _measurements(process: asyncio.subprocess.Process) -> bytes:
    """Return the measurements of a child process."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    return await _line(process)


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a process of the bench ended: see its log")
    return line


async def _tenants(api: AsyncApi, options: Options) -> tuple[list[TenantWorker], TenantWorker]:
    """Create all tenants; return the workers of the others, and one of the hostile tenant."""
    names = [(f"tenant-{number // _APPS_PER_NAMESPACE}", f"app-{number}") for number in range(options.apps)]
    for namespace in dict.fromkeys([*(namespace for namespace, _ in names), _HOSTILE]):
        await create_namespace(api, namespace)
    free = asyncio.Semaphore(_AT_ONCE)

    async def make(namespace: str, name: str, replicas: int) -> list[TenantWorker]:
        async with free:
            await create_app(api, namespace, name, replicas)
            return list(await workers_of(api, namespace, name))

    hostile, *others = await asyncio.gather(
        make(_HOSTILE, "app-0", 1), *(make(namespace, name, options.workers) for namespace, name in names)
    )
    return [worker for each in others for worker in each], hostile[0]


async def _authority(api: AsyncApi) -> str:
    """Return the CA certificate that workers trust, PEM."""
    secret = await api.get("Secret", _SYSTEM, "millpond-coordinator-tls")
    return base64.b64decode(secret["data"]["ca.crt"]).decode()


def _refused(operator: OperatorProcess) -> dict[str, int]:
    name = "millpond_coordinator_refusals_total"
    return {each.labels["reason"]: int(each.value) for each in operator.metrics() if each.name == name}


async def measure(server: SharedApiServer, operator: OperatorProcess, directory: Path, options: Options) -> Figures:
    """Create the tenants, measure without attack, then attack; return the measurements."""
    async with AsyncApi(server.admin, agent="bench") as api:
        workers, hostile = await _tenants(api, options)
        ca, hostname = await _authority(api), f"millpond-coordinator.{_SYSTEM}.svc"
        plan = Plan(operator.coordinator_port, hostname, ca, tuple(workers), options.tasks)
        watch = _Watch(api, operator)
        async with _child("fleet", plan, directory) as fleet:
            await _line(fleet)
            polling = asyncio.create_task(watch.poll())
            await asyncio.sleep(options.calm)
            calm, calm_mb = msgspec.json.decode(await _measurements(fleet), type=Phase), watch.most_mb
            attack = Attack(
                operator.coordinator_port, hostname, ca, hostile, workers[0], options.tokens,
                options.tokens / options.seconds, options.idle, options.huge, options.huge_mb * 2**20,
            )  # fmt: skip
            async with _child("attack", attack, directory) as attacker:
                await _line(attacker)
                assert attacker.stdin is not None
                attacker.stdin.write(b"\n")
                await _measurements(fleet)  # delays during the start of that process do not count
                cpu, waited, began = watch.cpu(), watch.waited(), clock.monotonic()
                await asyncio.sleep(options.seconds)
                attacked = msgspec.json.decode(await _measurements(fleet), type=Phase)
                took = clock.monotonic() - began
                share, waited_share = (watch.cpu() - cpu) / took, (watch.waited() - waited) / took
                did = msgspec.json.decode(await _measurements(attacker), type=dict[str, int])
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError, ApiFailure):
                await polling
        return Figures(
            options.apps,
            len(workers),
            calm,
            attacked,
            did,
            await asyncio.to_thread(_refused, operator),
            len(watch.leaders) - 1 + (not operator.alive),
            watch.longest_renewal_s,
            calm_mb,
            watch.most_mb,
            watch.connections,
            share,
            waited_share,
            os.getloadavg()[0],
        )


def run(options: Options) -> Figures:
    """Run the whole bench.

    Raises:
        BinariesMissing: the API server is not installed.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with operating(_SYSTEM, {"RESYNC_INTERVAL": "60s", "WATCH_PATIENCE": "60s"}, watch="") as setting:
        return asyncio.run(measure(setting.server, setting.operator, setting.directory, options))


def main() -> None:
    """Run the bench; print and save the results; exit with status 1 if a target is missed."""
    options = Options(**{name: int(value) for name, value in from_arguments(sys.argv[1:]).items()})
    try:
        figures = run(options)
    except BinariesMissing as missing:
        sys.exit(str(missing))
    calm, attacked = figures.calm, figures.attacked
    print(
        f"\n  {figures.apps} StreamApps, {figures.workers} workers, and one hostile tenant, on "
        f"{os.cpu_count()} cores\n\n"
        f"  {'':<34}{'alone':>10}{'attacked':>12}"
    )
    for what, before, after, target in (
        ("heartbeats answered", f"{calm.answered:,}", f"{attacked.answered:,}", ""),
        ("answers late, p50", _ms(calm.p50_s), _ms(attacked.p50_s), ""),
        ("answers late, p99", _ms(calm.p99_s), _ms(attacked.p99_s), f"below {_ms(_MOST_LATE_S)}"),
        ("answers late, longest", _ms(calm.longest_s), _ms(attacked.longest_s), ""),
        ("connections that ended", str(calm.broken), str(attacked.broken), ""),
        ("lost leases", "", str(figures.lost_leases), "0"),
        ("longest time between renewals", "", f"{figures.longest_renewal_s:.1f} s", "10 s"),
        ("the operator's memory", f"{figures.calm_mb:.0f} MB", f"{figures.most_mb:.0f} MB", f"below {_MOST_MB:.0f} MB"),
        ("its connections, at most", "", str(figures.connections), ""),
        ("its share of a core", "", f"{figures.operator_core_share:.0%}", ""),
        ("it waited for a core", "", f"{figures.operator_waited_share:.0%}", ""),
        ("load average of the machine", "", f"{figures.load_average:.1f}", ""),
    ):
        print(f"  {what:<34}{before:>10}{after:>12}   {target}")
    for what, counts in (("the attack", figures.attack), ("refused", figures.refused)):
        print(f"\n  {what}: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    print(f"\n{RESULT}")
    missed = attacked.p99_s >= _MOST_LATE_S or figures.lost_leases or figures.most_mb >= _MOST_MB
    sys.exit(int(bool(missed)))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


if __name__ == "__main__":
    main()
