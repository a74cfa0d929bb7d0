"""Trace an operator while an application is created, left alone, upgraded and deleted: `sequence.py FILE SEED...`.

It writes one run for each seed, in JSON: the requests of the operator, and every callback of the loop. `--hostile` lets
the clocks of the machine jump, as if it were far too busy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from pathlib import Path
from typing import TypedDict

from tests.cluster.waiting import sleep
from tests.operating.scene import BASE, merged, scene_of
from tests.simulation.machine_clocks import hostile_clocks
from tests.simulation.trace import traced
from tests.simulation.world import simulated_world

__all__ = ("Line", "Run", "sequence")

#: Verb, resource, the rest of the path, status, and virtual seconds since the first call.
Line = tuple[str, str, str, int, float]
#: Clients close connections that are idle for longer than 15 s.
_IDLE_S = 40.0


class Run(TypedDict):
    """One run."""

    calls: list[Line]
    """The requests of the operator."""
    callbacks: list[str]
    """Every callback of the loop with its virtual time."""


def sequence(seed: int) -> Run:
    """Return the trace of one run."""
    with (
        traced() as callbacks,
        tempfile.TemporaryDirectory() as directory,
        simulated_world(seed) as world,
        scene_of(world, Path(directory), "same") as scene,
    ):
        for image in ("delays:1", "delays:2"):
            scene.apply("one", merged(BASE, {"replicas": 2, "image": image}))
            scene.await_settled("one")
            sleep(_IDLE_S)
        scene.delete("StreamApp", "one")
        scene.eventually(lambda: not scene.find("StreamApp", "one"), "it goes")
        calls = list(scene.proxy.calls)
    lines = [
        (
            call.verb,
            call.resource,
            f"{call.namespace}/{call.name}/{call.subresource}",
            call.status,
            round(call.at - calls[0].at, 6),
        )
        for call in calls
    ]
    return Run(calls=lines, callbacks=callbacks)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("seeds", type=int, nargs="+", metavar="SEED")
    parser.add_argument("--hostile", action="store_true", help="let the clocks of the machine jump")
    given = parser.parse_args()
    with hostile_clocks(given.seeds[0]) if given.hostile else contextlib.nullcontext():
        runs = [sequence(seed) for seed in given.seeds]
    given.file.write_text(json.dumps(runs, indent=0), encoding="utf-8")


if __name__ == "__main__":
    _main()
