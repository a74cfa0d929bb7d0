"""Rows in a store that were written as another type: the error names the store and the cures, whatever reads the row.

Each case has records of a first run, whose type has no field `unit`, and records of a second run on the same rows.
"""

from __future__ import annotations

import logging
import re

import pytest

import millpond as mp
from millpond.errors import ProcessingFailed
from tests.dsl.table_joins.test_foreign_keys_of_changed_types import Kept

from .cases import CASES
from .running import AGAIN, LATE, TYPES, M, New, Old, Record, Run, first_run


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_row_of_another_type_is_an_error_that_names_the_store_and_the_cures(name: str, types: str) -> None:
    """The input record is not blamed, and no advice drops it. With a default, all results are those of one type."""
    case, (old, new, with_default) = CASES[name], TYPES[types]
    with pytest.raises(Exception) as raised:
        Run(case, new, first_run(case, old)).put(case.second)
    message = str(raised.value)
    assert isinstance(raised.value, ProcessingFailed), f"{type(raised.value)}: {message}"
    assert f"store '{case.store}' has a row that {mp.Json(new).name} cannot decode" in message
    assert "The input record is not the cause: give the field `unit` a default" in message
    if case.of_topic:
        assert "keep the old type, or produce the rows of its topic again. Its offset" in message
    else:
        assert "give the store a new name so that it begins empty" in message
        assert "`millpond reset`" in message
    assert "'continue'" not in message
    assert len(re.findall("Its offset is not committed", message)) == 1

    with Run(case, with_default, first_run(case, old)) as run:
        found = run.put(case.second)
    with Run(case, with_default, Kept()) as run:
        run.put(case.first)
        assert found == run.put(case.second) != []


#: Cases in which the row waited to be sent: records of a second run, all of its results, and the name of the row.
WAITED: dict[str, tuple[list[Record], list[tuple[str, str | None]], str]] = {
    "suppress until windows close": ([*LATE, ("in", "z", 0, 20 * M)], [("b", "3")], "held-back result"),
    "suppress for a time": ([*LATE, ("in", "z", 0, 20 * M)], [("b", "3")], "held-back result"),
    "suppress up to a number": ([*LATE, ("in", "z", 0, 20 * M)], [("b", "3")], "held-back result"),
    "join with a grace period, buffer": (
        [("in", "a", 3, 5 * M), ("in", "z", 0, 20 * M)],
        [("a", "3/7")],
        "waiting record",
    ),
    "join with a grace period, table": (
        [("in", "a", 2, 1), ("rows", "b", 4, 1), ("in", "b", 3, 5 * M), ("in", "z", 0, 20 * M)],
        [("b", "3/4")],
        "waiting record",
    ),
    "unmatched records of the left side": (
        [("left", "b", 3, 9 * M), ("right", "b", 4, 9 * M), ("left", "c", 5, 9 * M), ("left", "z", 0, 20 * M)],
        [("b", "3/4"), ("c", "5/-")],
        "waiting record",
    ),
    "final time windows": ([*LATE, ("in", "z", 0, 20 * M)], [("b", "3")], "final result"),
    "final sliding windows": ([("in", "b", 3, 9 * M), ("in", "z", 0, 20 * M)], [("b", "3")], "final result"),
    "final sessions": ([*LATE, ("in", "z", 0, 20 * M)], [("b", "3")], "final result"),
}


@pytest.mark.parametrize("name", WAITED)
def test_row_that_waited_is_dropped_alone_with_continue(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """No input record is lost or sent as a dead letter, and the log line says what is dropped."""
    case, (records, results, what) = CASES[name], WAITED[name]
    with Run(case, New, first_run(case, Old), "continue") as run:
        assert run.put(records) == results
        assert run.results("dead") == []
        assert run.metrics()["dropped"] == 1
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert re.match(
        rf"node '[^']+' could not send a {what} at (task 0_0|[a-z-]+-0 offset \d): store '{case.store}' has a row", line
    )
    assert line.endswith("from the inputs; it is dropped, and input records are not.")


@pytest.mark.parametrize(
    ("dead", "fate"), [("dead", "sent to 'dead'"), (None, "the input record is dropped all the same")]
)
def test_record_that_needs_the_row_is_dropped_with_continue(
    dead: str | None, fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log line says that the input record is dropped although it is not the cause."""
    case = CASES["aggregate"]
    with Run(case, New, first_run(case, Old), "continue", dead) as run:
        assert run.put([*AGAIN, ("in", "b", 2, 2)]) == [("b", "2")]
        if dead:
            assert [key for key, _ in run.results(dead)] == ["a"]
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert line.startswith(
        "node 'KSTREAM-AGGREGATE-0000000001' could not process a record at in-0 offset 0: store 'totals'"
    )
    assert f"from the inputs; {fate}" in line


def test_partner_of_a_row_that_cannot_be_read_is_not_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """The waiting record stays, until its own turn comes: it is neither joined nor lost without a line in the log."""
    case = CASES["left join of streams, left store"]
    with Run(case, New, first_run(case, Old), "continue") as run:
        assert run.put([("right", "a", 2, 1), ("left", "z", 0, 20 * M)]) == []
        assert run.metrics()["dropped"] == 2
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [line.partition(" at ")[0].rpartition("could not ")[2] for line in lines] == [
        "process a record",
        "send a waiting record",
    ]
