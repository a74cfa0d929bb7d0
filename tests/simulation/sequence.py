"""Print every request of an operator while an application is created, upgraded and deleted: `sequence.py FILE SEED...`.

It writes one list of calls for each seed, in JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.operating.scene import BASE, merged, scene_of
from tests.simulation.world import simulated_world

__all__ = ("Line", "sequence")

#: Verb, resource, the rest of the path, status, and virtual seconds since the first call.
Line = tuple[str, str, str, int, float]


def sequence(seed: int) -> list[Line]:
    """Return the requests of one run."""
    with (
        tempfile.TemporaryDirectory() as directory,
        simulated_world(seed) as world,
        scene_of(world, Path(directory), "same") as scene,
    ):
        for image in ("delays:1", "delays:2"):
            scene.apply("one", merged(BASE, {"replicas": 2, "image": image}))
            scene.await_settled("one")
        scene.delete("StreamApp", "one")
        scene.eventually(lambda: not scene.find("StreamApp", "one"), "it goes")
        calls = list(scene.proxy.calls)
    return [
        (
            call.verb,
            call.resource,
            f"{call.namespace}/{call.name}/{call.subresource}",
            call.status,
            round(call.at - calls[0].at, 6),
        )
        for call in calls
    ]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps([sequence(int(seed)) for seed in sys.argv[2:]]), encoding="utf-8")
