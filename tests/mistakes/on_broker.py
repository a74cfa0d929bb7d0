"""Runs mistakes that only a broker can tell: a worker starts in the process of the test, and fails or logs."""

from __future__ import annotations

import os
import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import millpond as mp
from tests.mistakes.running import command_output, warnings_of
from tests.mistakes.table import PRELUDE, Mistake, Moment
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.presence import await_report

__all__ = ("said_on_broker",)

_APPLICATION = "shop"
_CHANGELOG = "counts-changelog"
_OTHER_PROCESS = "4711"
"""The number that a running worker in another process would have written into its lock."""


def said_on_broker(mistake: Mistake, servers: str, app_id: str, directory: Path, capsys: Any) -> tuple[Moment, str]:
    """Make a mistake; return the moment at which something was said, and what was said.

    Args:
        mistake: the mistake.
        servers: the broker's address.
        app_id: an application id that no other test has. The table calls it `shop`.
        directory: an empty directory.
        capsys: pytest's capture of output.
    """
    suffix = app_id[-8:]
    lock = directory / "state" / app_id / "w0" / "lock"
    for topic, partitions in mistake.topics.items():
        if partitions:
            kafka.create_topic(servers, f"{topic}-{suffix}", partitions)

    def worker(code: str, **settings: Any) -> Running:
        unique = re.sub(r'"([\w-]+)"', lambda found: _renamed(found, mistake.topics, suffix), PRELUDE + code)
        names: dict[str, Any] = {"__name__": "app"}
        exec(compile(unique, "app.py", "exec"), names)
        given = {**mistake.settings, **{key.replace("_", "."): value for key, value in settings.items()}}
        topology: mp.Topology = names["builder"].build()
        return Running(topology, servers, app_id, directory / "state", given)

    with ExitStack() as stack, warnings_of("millpond.runtime") as lines:
        if mistake.scene == "after another worker":
            with worker(mistake.code, worker_id="w0") as before:
                before.wait_running()
            said = str(worker(mistake.code, worker_id="w1").start().join())
        elif mistake.scene == "while it runs":
            stack.enter_context(worker(mistake.code)).wait_running()
            lock.write_text(_OTHER_PROCESS)
            said = str(worker(mistake.code).start().join())
        elif mistake.scene.startswith("reset while it runs"):
            stack.enter_context(worker(mistake.code)).wait_running()
            await_report(servers, app_id, f"views-{suffix}", "w0")
            lock.write_text(_OTHER_PROCESS)
            here = "elsewhere" if mistake.scene.endswith("on another machine") else "state"
            command = ["reset", "--dry-run", "--application-id", app_id, "--bootstrap-servers", servers]
            command += ["--input-topics", f"views-{suffix}", "--state-dir", str(directory / here)]
            output = command_output(command, capsys)
            said = next((line for line in output.splitlines() if line.startswith("A worker")), output)
            said = said.replace(socket.gethostname(), "node-7")
            said = said.replace(f"(process {os.getpid()})", f"(process {_OTHER_PROCESS})")
        elif mistake.scene == "after a change":
            with worker(mistake.before) as before:
                before.wait_running()
            lines.clear()
            with worker(mistake.code):
                said = _first(lines, "the store ")
        elif mistake.scene == "a file in place of the state directory":
            (directory / "state").touch()
            said = str(worker(mistake.code).start().join())
        elif mistake.scene == "another partitioner":
            keys = [str(each).encode() for each in range(60)]
            for topic, partitioner in zip(mistake.topics, ("consistent_random", "murmur2_random"), strict=True):
                rows = [(key, b"{}") for key in keys]
                kafka.produce(servers, f"{topic}-{suffix}", rows, partitioner=partitioner)
            with worker(mistake.code):
                said = _first(lines, "topic ")
            said = re.sub(r"\d+ of the first \d+ keys", "17 of the first 20 keys", said)
        elif mistake.scene == "after another application":
            kafka.create_topic(servers, f"{app_id}-{_CHANGELOG}", 6)
            said = str(worker(mistake.code).start().join())
        else:
            said = str(worker(mistake.code).start().join())
    said = said.replace(app_id, _APPLICATION).replace(f"-{suffix}", "").replace(servers, "localhost:9092")
    return Moment.BROKER, said.replace(str(directory), ".")


def _first(lines: list[str], start: str) -> str:
    """Wait for a warning that begins like this, and return it: a busy machine is a reason for other warnings."""
    kafka.eventually(
        lambda: any(line.startswith(start) for line in lines),
        lambda: f"a warning that begins with {start!r}; there are {lines}",
    )
    return next(line for line in lines if line.startswith(start))


def _renamed(found: re.Match[str], topics: dict[str, int], suffix: str) -> str:
    return f'"{found[1]}-{suffix}"' if found[1] in topics else found[0]
