"""The overview of an application from the coordinator's view."""

from __future__ import annotations

import msgspec

from millpond.console import WorkerFacts, figures_of, moves_of, tasks_of, topology_of, workers_of
from millpond.protocol import Brokers, Epoch, Member, Role, TaskReport, TaskState, Trouble, View
from tests.console.pond import view

REPLACE = msgspec.structs.replace


def task(seen: View, name: str):
    return next(each for each in tasks_of(seen) if each.task == name)


def with_member(seen: View, worker: str, **changes: object) -> View:
    members = tuple(REPLACE(each, **changes) if each.worker == worker else each for each in seen.members)
    return REPLACE(seen, members=members)


def test_every_task_of_the_topology_is_there_in_order() -> None:
    """Also one that no worker holds."""
    seen = with_member(view(), "pond-2", alive=False)
    assert [each.task for each in tasks_of(seen)] == ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]
    gone = task(seen, "1_2")
    assert (gone.state, gone.worker, gone.owner, gone.lag) == ("", "pond-2", "pond-2", None)


def test_task_has_its_rate_lag_copies_and_note() -> None:
    """Rates and lags are those that its worker measures."""
    found = task(view(), "1_2")
    assert (found.worker, found.state, found.records_per_second, found.lag) == ("pond-2", "running", 1_240.0, 5)
    assert found.lag_seconds == 5 / 1_240
    assert [(each.worker, each.state, each.lag) for each in found.warm_ups] == [("pond-1", "restoring", 48_211)]
    assert found.note.startswith("1_2 stays on pond-2 until")


def test_task_that_moves_is_shown_where_it_runs() -> None:
    """The next owner looks it up while the last one still processes it."""
    seen = view()
    tasks = {**seen.members[0].tasks, "0_2": TaskReport(Role.ACTIVE, TaskState.ACQUIRING)}
    found = task(with_member(seen, "pond-0", tasks=tasks), "0_2")
    assert (found.worker, found.state) == ("pond-2", "running")


def test_copy_that_is_not_held_yet_has_no_state() -> None:
    """The assignment may be newer than the reports."""
    seen = with_member(view(), "pond-1", tasks={})
    assert [(each.worker, each.state, each.lag) for each in task(seen, "1_2").warm_ups] == [("pond-1", "", None)]


def test_moves_have_source_target_reason_and_lag() -> None:
    """They are in the order of tasks; a task that has arrived moves no more."""
    first, second = moves_of(view())
    assert (first.task, first.source, first.target, first.lag) == ("0_2", "pond-2", "pond-0", None)
    assert (second.task, second.source, second.target, second.lag) == ("1_2", "pond-2", "pond-1", 48_211)
    arrived = REPLACE(view(), owners={**view().owners, "0_2": "pond-0"})
    assert [each.task for each in moves_of(arrived)] == ["1_2"]


def test_task_without_a_place_to_go_does_not_move() -> None:
    """It waits for a worker; the task itself says so."""
    seen = REPLACE(view(), goals={}, waiting={"0_0": "0_0 cannot run: no live worker may get tasks"})
    assert moves_of(seen) == ()
    assert task(seen, "0_0").note == "0_0 cannot run: no live worker may get tasks"


def test_sums_are_unknown_while_a_part_is() -> None:
    """A lag that is too small would be a lie."""
    whole = figures_of(tasks_of(view()))
    assert (whole.running, whole.total, whole.records_per_second, whole.lag) == (6, 6, 4_957.5, 20)
    assert whole.lag_seconds == 12 / 412.5
    part = figures_of(tasks_of(with_member(view(), "pond-1", rates=None)))
    assert (part.running, part.lag, part.lag_seconds) == (6, None, None)
    assert part.records_per_second == 4_957.5 - 1_652.5
    assert figures_of(()).lag is None


def test_task_with_a_lag_that_processes_nothing_has_no_time() -> None:
    """It never catches up at that rate."""
    seen = view()
    rates = seen.members[1].rates
    assert rates is not None
    still = REPLACE(rates, tasks={name: REPLACE(each, records_per_second=0.0) for name, each in rates.tasks.items()})
    tasks = tasks_of(with_member(seen, "pond-1", rates=still))
    assert {each.task: each.lag_seconds for each in tasks if each.worker == "pond-1"} == {"0_1": None, "1_1": 0.0}
    assert figures_of(tasks).lag_seconds is None


def test_workers_have_roles_rates_disk_and_facts() -> None:
    """What Kubernetes knows of a worker is beside what the worker reports."""
    facts = {"pond-1": WorkerFacts(node="node-1", revision="5f9c"), "pond-10": WorkerFacts(trouble="No image.")}
    workers = {each.worker: each for each in workers_of(view(), facts)}
    assert list(workers) == ["pond-0", "pond-1", "pond-2", "pond-10"]
    one = workers["pond-1"]
    assert (one.state, one.active, one.standby, one.warm_up, one.restoring) == ("alive", 2, 0, 1, 1)
    assert (one.records_per_second, one.utilisation, one.lag, one.volume_used) == (1_652.5, 0.43, 12, 0.62)
    assert (one.node, one.revision) == ("node-1", "5f9c")
    assert workers["pond-2"].state == "draining"
    assert (workers["pond-10"].state, workers["pond-10"].trouble) == ("starting", "No image.")


def test_worker_that_ended_or_starts_is_told_apart() -> None:
    """A worker that has trouble and is not alive starts; one without brokers says so."""
    trouble = Trouble("BrokerError", "No broker answers. Check bootstrap.servers.")
    members = (
        Member("a", alive=False), Member("b", alive=False, trouble=trouble), Member("c", brokers=Brokers.LOST),
    )  # fmt: skip
    found = workers_of(View("x", Epoch(), members=members), {})
    assert [(each.state, each.trouble) for each in found] == [
        ("gone", ""), ("starting", trouble.message), ("alive", "The brokers do not answer this worker."),
    ]  # fmt: skip


def test_edges_from_topics_have_the_sums_of_their_partitions() -> None:
    """Other edges have no figures."""
    topology = topology_of(view())
    assert topology is not None
    figures = {each.topic: (each.records_per_second, each.lag) for each in topology.edges if each.lag is not None}
    assert figures == {"flights": (1_237.5, 15), "pond-airports-repartition": (3_720.0, 5)}
    assert topology_of(REPLACE(view(), graph=None)) is None
