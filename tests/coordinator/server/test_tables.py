"""The text tables."""

from __future__ import annotations

from millpond.protocol import Epoch, Member, Role, TaskReport, TaskState, Trouble, View
from millpond_operator.coordinator.server.tables import assignment_table, members_table
from tests.coordinator.support import running, topology


def rows(table: str) -> dict[str, str]:
    return {line.split()[0]: line for line in table.splitlines() if line}


def test_assignment_view_shows_place_and_reason_of_each_task() -> None:
    """Every state of a task is displayed; tasks are in numerical order."""
    view = View(
        "delays",
        Epoch(2, 17),
        topology(12),
        (
            Member("w0", tasks=running("0_0") | {"0_10": TaskReport(Role.ACTIVE, TaskState.RESTORING, 1_234)}),
            Member("w1", tasks={"0_0": TaskReport(Role.STANDBY, TaskState.RUNNING, 56)}),
            Member("w2", alive=False),
        ),
        owners={"0_0": "w0", "0_2": "w1", "0_3": "w2", "0_10": "w0", "0_5": "w9"},
        active={"0_0": "w0", "0_2": "w0", "0_3": "w1", "0_4": "w1", "0_10": "w0"},
        standby={"0_0": ("w1",)},
        warm_up={"0_2": ("w0",)},
        waiting={"0_2": "0_2 stays until it is warm"},
    )
    table = assignment_table(view)
    assert table.splitlines()[0] == "delays . epoch 2.17 . 2 workers . 12 tasks"
    found = rows(table)
    assert [task for task in found if task[0].isdigit()] == ["0_0", "0_2", "0_3", "0_4", "0_5", "0_10"]
    assert found["0_0"].split() == ["0_0", "w0", "running", "-", "w1", "(56)", "-"]
    assert found["0_2"].endswith("w0 (-)      0_2 stays until it is warm")
    assert found["0_3"].endswith("to be taken over from w2, which is dead")
    assert found["0_4"].endswith("no owner yet")
    assert found["0_5"].endswith("no worker can run it")
    assert "restoring  1,234" in found["0_10"]


def test_empty_view_is_one_sentence() -> None:
    """Not an empty table."""
    assert "No tasks are assigned yet." in assignment_table(View("delays", Epoch(1, 0)))
    assert members_table([]) == "No worker has sent a heartbeat yet.\n"


def test_member_view_shows_tasks_and_clock_skew() -> None:
    """A clock that is an hour off is visible; dead workers hold nothing."""
    tasks = running("0_0", "0_1") | {"0_2": TaskReport(Role.STANDBY), "0_3": TaskReport(Role.WARM_UP)}
    found = rows(
        members_table(
            [
                Member("w1", clock_skew_ms=3_600_000, silent_ms=1_234, tasks=tasks, address="http://w1:8080"),
                Member("w0", draining=True, clock_skew_ms=-1_500),
                Member("w2", alive=False, tasks=tasks),
            ]
        )
    )
    assert list(found) == ["WORKER", "w0", "w1", "w2"]
    assert found["w0"].split() == ["w0", "draining", "0", "0", "0", "0.0", "s", "ok", "-"]
    assert found["w1"].split() == ["w1", "alive", "2", "1", "1", "1.2", "s", "+3,600", "s", "http://w1:8080"]
    assert found["w2"].split()[:5] == ["w2", "gone", "0", "0", "0"]


def test_a_worker_in_trouble_is_shown_with_it() -> None:
    """A worker that waits for brokers at its start is neither alive nor gone."""
    trouble = Trouble("BrokerError", "no answer from Kafka at 'kafka:9092'.")
    table = members_table([Member("w1"), Member("w0", alive=False, trouble=trouble)])
    assert rows(table)["w0"].split()[:2] == ["w0", "starting"]
    assert table.endswith("w0: no answer from Kafka at 'kafka:9092'.\n")
