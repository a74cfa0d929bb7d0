"""`millpond status` and `millpond drain` against a real operator on a real API server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.cli import main
from tests.operating.scene import BASE, Scene, merged, scene_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def scene(real_world, tmp_path) -> Iterator[Scene]:
    with scene_of(real_world, tmp_path, "commands") as made:
        yield made


def test_worker_is_drained_and_gets_tasks_again_by_commands(scene: Scene, real_world, tmp_path: Path, capsys) -> None:
    """--wait ends when the operator confirms that no task is left, and not before."""
    config = real_world.server.admin.write_kubeconfig(tmp_path / "user.kubeconfig")

    def millpond(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "-n", scene.namespace, "--kubeconfig", str(config)])
            sys.exit(0)
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return said.out

    scene.apply("drained", merged(BASE, {"replicas": 2}))
    scene.await_settled("drained")
    assert "drained-1 has no task.\n" in millpond("drain", "drained", "1", "--wait", "--timeout", "90s")
    content = json.loads(millpond("status", "drained", "--json"))
    assert {each["worker"] for each in content["tasks"]} == {"drained-0"}
    assert any("Drained by request" in each for each in content["inProgress"])
    assert "Drained by request" in millpond("status", "drained", "--once")
    millpond("drain", "drained", "--undo")
    scene.eventually(lambda: "draining" not in scene.status("drained"), "the operator sees it")

    def busy() -> set[str]:
        return {each["worker"] for each in json.loads(millpond("status", "drained", "--json"))["tasks"]}

    scene.eventually(lambda: busy() == {"drained-0", "drained-1"}, "both have tasks again")
