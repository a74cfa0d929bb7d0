"""Random sequences of events happen to an application, and what it reports is true all the time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.cluster.waiting import sleep, wait_for
from tests.operating.stage import App, Stage
from tests.operating.status_watch import Watch
from tests.support.measuring.status_accuracy import false_reports, flaps

pytestmark = pytest.mark.timeout(600)

_TASKS = 4
_EVENTS = 5


class _Story:
    """One application and the events that happen to it."""

    def __init__(self, stage: Stage, app: App, seed: int) -> None:
        self._stage = stage
        self._app = app
        self._random = random.Random(seed)
        self.log: list[str] = []

    def happen(self) -> None:
        """Let one event happen, and time pass."""
        acts: dict[str, Callable[[], None]] = {
            "a pod is deleted": self._delete,
            "a pod is deleted by force": self._delete_by_force,
            "a worker is killed": self._kill,
            "a worker is frozen for a while": self._freeze,
            "a node is lost for a while": self._lose,
            "it is scaled": self._scale,
            "it gets another image": self._upgrade,
            "it gets a broken image, and then a good one": self._break,
            "it is suspended for a while": self._suspend,
        }
        what = self._random.choice(list(acts))
        self.log.append(what)
        acts[what]()
        sleep(self._random.choice([0.5, 2.0, 8.0, 20.0]))

    def _pod(self) -> str:
        pods = self._stage.api.list("Pod", self._stage.namespace, f"millpond.dev/app={self._app.name}")
        there = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]
        return self._random.choice(sorted(there)) if there else ""

    def _delete(self) -> None:
        if pod := self._pod():
            self._stage.api.delete("Pod", self._stage.namespace, pod)

    def _delete_by_force(self) -> None:
        if pod := self._pod():
            self._stage.api.delete("Pod", self._stage.namespace, pod, gracePeriodSeconds=0)

    def _kill(self) -> None:
        if pod := self._pod():
            self._stage.kubelets.kill(self._stage.namespace, pod)

    def _freeze(self) -> None:
        pod = self._pod()
        if pod in self._stage.kubelets.workers(self._stage.namespace):
            self._stage.kubelets.freeze(self._stage.namespace, pod)
            sleep(self._random.choice([2.0, 10.0]))
            self._stage.kubelets.thaw(self._stage.namespace, pod)

    def _lose(self) -> None:
        if pod := self._pod():
            node = self._stage.kubelets.node_of(self._stage.namespace, pod)
            self._stage.kubelets.lose(node)
            sleep(self._random.choice([1.0, 10.0, 30.0]))
            self._stage.kubelets.recover(node)

    def _scale(self) -> None:
        self._app.apply(replicas=self._random.choice([2, 3, 4]))

    def _upgrade(self) -> None:
        self._app.apply(image=self._random.choice(["delays:1", "delays:2"]))

    def _break(self) -> None:
        before = self._app.spec["image"]
        self._app.apply(image="delays:nowhere")
        sleep(self._random.choice([2.0, 40.0]))
        self._app.apply(image=before)

    def _suspend(self) -> None:
        self._app.apply(suspended=True)
        sleep(self._random.choice([1.0, 10.0]))
        self._app.apply(suspended=False)


@pytest.mark.share(2)
@pytest.mark.parametrize("number", range(6))
def test_conditions_tell_the_truth_throughout(world, tmp_path, number, pytestconfig) -> None:
    """No condition is wrong for longer than five seconds, and none changes briefly without a reason."""
    seed = 1_000 * int(pytestconfig.getoption("--seed", default=None) or 0) + number
    with Stage(
        world, world.namespace("stories"), tmp_path, {"RESYNC_INTERVAL": "60s", "WATCH_PATIENCE": "60s"}
    ) as stage:
        stage.start()
        app = stage.app("delays")
        with Watch(world, stage.namespace, app.name, stage.kubelets, _TASKS) as watch:
            app.apply(replicas=3, standbyReplicas=1, sessionTimeout="1s", rollout={"minReady": "0s"})
            app.runs()
            story = _Story(stage, app, seed)
            for _ in range(_EVENTS):
                story.happen()
            wait_for(lambda: watch.moments[-1].complete, f"{story.log} come to an end", otherwise=app.status)
            sleep(10)
        told = [f"seed {seed}: {', then '.join(story.log)}", *false_reports(watch.moments), *flaps(watch.moments)]
        assert len(told) == 1, "\n".join(told)
        assert not stage.violations()
