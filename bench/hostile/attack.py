"""The hostile tenant, a child process: `python -m bench.hostile.attack FILE`.

From one line of standard input until the next, it sends all at once: tokens with a wrong signature, idle TLS
connections, and heartbeats of 16 MB from an admitted worker. Then it prints its counters as a line of JSON.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import ssl
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.heartbeats import KAFKA, Way
from bench.hostile.tenants import AUDIENCE, TenantWorker

__all__ = ("Attack",)

#: The addresses of the tenant's pods.
_PODS = 4
#: The address of the admitted worker.
_WORKER = "127.66.1.1"
_SENDERS = 64
_PAUSE_S = 0.1
_ANSWER_S = 30.0


class Attack(msgspec.Struct, frozen=True):
    """The options of the process."""

    port: int
    hostname: str
    ca: str
    """The coordinator's CA certificate, PEM."""
    worker: TenantWorker
    """An admitted worker."""
    victim: TenantWorker
    """The worker that forged tokens name."""
    tokens: int
    tokens_per_s: float
    idle: int
    """The number of idle connections."""
    huge: int
    """The number of connections that send large heartbeats one after the other."""
    huge_bytes: int


class _Attacker:
    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._way = Way(attack.port, ssl.create_default_context(cadata=attack.ca), attack.hostname)
        self._pods = itertools.cycle(f"127.66.0.{number + 1}" for number in range(_PODS))
        self.did: Counter[str] = Counter()
        self._began = 0.0
        self._large = _large(attack.worker, attack.huge_bytes) if attack.huge else b""
        self._numbers = itertools.count()

    async def run(self) -> None:
        """Attack until cancelled."""
        attack, self._began = self._attack, time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(_SENDERS if attack.tokens else 0):
                group.create_task(self._tokens())
            for _ in range(attack.idle):
                group.create_task(self._idle())
            for _ in range(attack.huge):
                group.create_task(self._huge())

    async def begun(self) -> None:
        """Wait until each kind of attack was tried at least once."""
        while not (  # noqa: ASYNC110 - polls counters of many tasks
            self._tried("token") >= min(self._attack.tokens, _SENDERS)
            and self._tried("idle") >= self._attack.idle
            and (not self._attack.huge or any(self._answered("huge")))
        ):
            await asyncio.sleep(_PAUSE_S)

    def _answered(self, kind: str) -> Iterator[str]:
        return (
            each for each in self.did if each.startswith(kind) and each not in {f"{kind}_connected", f"{kind}_refused"}
        )

    def _tried(self, kind: str) -> int:
        return self.did[f"{kind}_connected"] + self.did[f"{kind}_refused"]

    async def _tokens(self) -> None:
        for number in self._numbers:
            if number >= self._attack.tokens:
                return
            due = self._began + number / self._attack.tokens_per_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            victim = self._attack.victim
            path = f"{victim.prefix}/v1/applications/{victim.application}/workers/{victim.name}/heartbeat"
            request = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {_forged(victim, number)}\r\n"
            await self._post("token", next(self._pods), f"{request}Content-Length: 2\r\n\r\n".encode() + b"{}")

    async def _idle(self) -> None:
        while True:
            await self._post("idle", next(self._pods), b"")
            await asyncio.sleep(_PAUSE_S)

    async def _huge(self) -> None:
        while True:
            await self._post("huge", _WORKER, self._large)

    async def _post(self, kind: str, source: str, request: bytes) -> None:
        """Send data, if any, and wait for the response."""
        try:
            reader, writer = await self._way.open(source)
        except OSError:
            self.did[f"{kind}_refused"] += 1
            await asyncio.sleep(_PAUSE_S)
            return
        self.did[f"{kind}_connected"] += 1
        try:
            if request:
                writer.write(request)
            async with asyncio.timeout(_ANSWER_S):
                line = await reader.readline()
            self.did[f"{kind}_{line.split()[1].decode()}" if line else f"{kind}_closed"] += 1
        except (OSError, TimeoutError):
            self.did[f"{kind}_closed"] += 1
        finally:
            writer.transport.abort()


def _large(worker: TenantWorker, size: int) -> bytes:
    """Return a heartbeat with so many tasks that it has about the given number of bytes."""
    path = f"{worker.prefix}/v1/applications/{worker.application}/workers/{worker.name}/heartbeat"
    tasks = {f"9_{number}": {"role": "standby", "lag": number} for number in range(size // 45)}
    body = json.dumps(
        {"application": worker.application, "worker": worker.name, "kafka_cluster": KAFKA, "tasks": tasks}
    ).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {worker.token}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _forged(victim: TenantWorker, number: int) -> str:
    """Return a token of the victim with a changed claim, so that its signature is wrong."""
    head, payload, signature = victim.token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert AUDIENCE in claims["aud"]
    claims["jti"] = f"{number}-{os.urandom(4).hex()}"
    changed = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"{head}.{changed}.{signature}"


async def main(options: bytes) -> None:
    """Attack from the first line of standard input until the second one."""
    attacker = _Attacker(msgspec.json.decode(options, type=Attack))
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    running = asyncio.create_task(attacker.run())
    await loop.run_in_executor(None, sys.stdin.readline)
    await attacker.begun()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    print(json.dumps(attacker.did), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_bytes()))
