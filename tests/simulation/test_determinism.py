"""The same seed gives the same run: every request to the API server, in the same order, at the same moment."""

from __future__ import annotations

from tests.operating.scene import BASE, merged, scene_of
from tests.simulation.world import simulated_world


def _calls(seed, directory):
    """What an operator asks for while an application is made, upgraded and deleted."""
    directory.mkdir()
    with simulated_world(seed) as world, scene_of(world, directory, "same") as scene:
        for image in ("delays:1", "delays:2"):
            scene.apply("one", merged(BASE, {"replicas": 2, "image": image}))
            scene.await_settled("one")
        scene.delete("StreamApp", "one")
        scene.eventually(lambda: not scene.find("StreamApp", "one"), "it goes")
        began = scene.proxy.calls[0].at
        return [(str(call), round(call.at - began, 3)) for call in scene.proxy.calls]


def test_the_same_seed_gives_the_same_sequence_of_calls(tmp_path):
    """And another one gives another."""
    first, again, other = (_calls(seed, tmp_path / name) for name, seed in (("1", 7), ("2", 7), ("3", 8)))
    assert len(first) > 100
    assert first == again
    assert first != other
