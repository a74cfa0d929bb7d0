"""The hostile tenant, as a process of its own: `python -m bench.hostile.attack FILE`.

All at once, from one line of standard input until the next: tokens as well made as they can be without the key, TLS connections that say
nothing, and heartbeats of 16 MB from a worker that was let in. Then it prints what it did, as a line of JSON.
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
from pathlib import Path

import msgspec

from bench.heartbeats import KAFKA, Way
from bench.hostile.tenants import AUDIENCE, TenantWorker

__all__ = ("Attack",)

#: A pod has one address; this tenant has a few pods.
_PODS = 4
#: The address of the one that is let in.
_WORKER = "127.66.1.1"
_SENDERS = 64
_PAUSE_S = 0.1
_ANSWER_S = 30.0


class Attack(msgspec.Struct, frozen=True):
    """What the process is told."""

    port: int
    hostname: str
    ca: str
    """PEM."""
    worker: TenantWorker
    """One that is let in."""
    victim: TenantWorker
    """Whom the tokens claim to be."""
    tokens: int
    tokens_per_s: float
    idle: int
    """Connections that say nothing, at the same time."""
    huge: int
    """Connections that send large heartbeats one after the other."""
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
        """Until cancelled."""
        attack, self._began = self._attack, time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(_SENDERS if attack.tokens else 0):
                group.create_task(self._tokens())
            for _ in range(attack.idle):
                group.create_task(self._idle())
            for _ in range(attack.huge):
                group.create_task(self._huge())

    async def begun(self) -> None:
        """Wait until each kind of attack has been tried, however busy the machine is."""
        while not (  # noqa: ASYNC110 - counters of many tasks
            self._tried("token") >= min(self._attack.tokens, _SENDERS)
            and self._tried("idle") >= self._attack.idle
            and (not self._attack.huge or self.did.keys() & {"huge_413", "huge_closed"})
        ):
            await asyncio.sleep(_PAUSE_S)

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
        """Send something, if anything, and wait for what comes of it."""
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
    """A heartbeat of a worker that names tasks until it has about so many bytes."""
    path = f"{worker.prefix}/v1/applications/{worker.application}/workers/{worker.name}/heartbeat"
    tasks = {f"9_{number}": {"role": "standby", "lag": number} for number in range(size // 45)}
    body = json.dumps(
        {"application": worker.application, "worker": worker.name, "kafka_cluster": KAFKA, "tasks": tasks}
    ).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {worker.token}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _forged(victim: TenantWorker, number: int) -> str:
    """A token of the victim's with a claim changed, so that its signature is wrong."""
    head, payload, signature = victim.token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert AUDIENCE in claims["aud"]
    claims["jti"] = f"{number}-{os.urandom(4).hex()}"
    changed = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"{head}.{changed}.{signature}"


async def main(told: bytes) -> None:
    """Attack from the first line of standard input until the second one."""
    attacker = _Attacker(msgspec.json.decode(told, type=Attack))
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
