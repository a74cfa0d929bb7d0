"""The checks of chaos runs with every operator find each lost, doubled and changed record."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.chaos.operators import checking
from tests.chaos.operators.application import INPUTS, OUTPUTS
from tests.chaos.operators.checking import CHECKED, find_in_changelogs_of_tables, find_in_outputs
from tests.chaos.operators.generating import CLOSING_ROUNDS, closing, draw
from tests.chaos.operators.replaying import replay
from tests.chaos.operators.sums import wrong_sums
from tests.support.kafka import Row

pytestmark = pytest.mark.xdist_group("checks of every operator")  # the outputs are made once

Rows = dict[str, list[Row]]
_START_MS = 1_700_000_000_000
_RECORDS, _STEP_MS = 500, 80


@pytest.fixture(scope="module")
def inputs() -> Rows:
    """Drawn input of one partition, in the order in which a broker would have it."""
    pick = random.Random(3)
    found: Rows = {name: [] for name in INPUTS}
    drawn = [draw(pick, number, _START_MS + number * _STEP_MS) for number in range(_RECORDS)]
    ends = [
        record
        for round_ in range(CLOSING_ROUNDS)
        for record, _ in closing(_RECORDS + 10 * round_, _START_MS + _RECORDS * _STEP_MS, round_)
    ]
    for record in [*drawn, *ends]:
        value, rows = None if record.value is None else record.value.encode(), found[record.topic]
        rows.append(Row(record.key.encode(), value, record.timestamp, 0, len(rows)))
    return found


@pytest.fixture(scope="module")
def outputs(inputs: Rows) -> Rows:
    """What workers would send, if a task took each record by its time."""
    return replay(inputs, optimized=False)


def test_every_output_is_checked() -> None:
    """A new output of the application needs a check."""
    assert frozenset(OUTPUTS) == CHECKED


@pytest.mark.slow
def test_every_output_has_records(outputs: Rows) -> None:
    """No check passes because there is nothing to check."""
    assert [name for name in OUTPUTS if len(outputs[name]) < 20] == []


def test_right_outputs_have_no_findings(inputs: Rows, outputs: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """All checks accept what the driver makes of the input."""
    monkeypatch.setattr(checking, "replay", lambda *_, **__: outputs)
    assert find_in_outputs(inputs, outputs, optimized=False) == []


def _lost(rows: list[Row]) -> list[Row]:
    return rows[: len(rows) // 2] + rows[len(rows) // 2 + 1 :]


def _twice(rows: list[Row]) -> list[Row]:
    return rows[: len(rows) // 2 + 1] + rows[len(rows) // 2 :]


def _last_lost(rows: list[Row]) -> list[Row]:
    return rows[:-1]


def _half_again(rows: list[Row]) -> list[Row]:
    return rows[: len(rows) // 2] + rows[len(rows) // 3 :]


#: Outputs whose records between the last ones of their keys are not determined: only their last records are checked.
_ONLY_THE_LAST = {"foreign-inner", "foreign-left", "cached"}


@pytest.mark.parametrize("wrong", [_lost, _twice, _half_again])
def test_a_lost_or_doubled_record_of_each_output_is_found(
    inputs: Rows, outputs: Rows, wrong: Callable[[list[Row]], list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record less, one twice, or a part of the work done again, in every output at once."""
    monkeypatch.setattr(checking, "replay", lambda *_, **__: outputs)
    changed = {name: wrong(rows) for name, rows in outputs.items()}
    places = {finding.place for finding in find_in_outputs(inputs, changed, optimized=False)}
    assert places >= CHECKED - _ONLY_THE_LAST


@pytest.mark.parametrize("name", sorted(_ONLY_THE_LAST))
def test_a_lost_last_record_is_found(inputs: Rows, outputs: Rows, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some outputs only the last record of each key is determined."""
    monkeypatch.setattr(checking, "replay", lambda *_, **__: outputs)
    key = next(row.key for row in reversed(outputs[name]) if row.value is not None)
    left = [row for row in outputs[name] if row.key != key]
    assert {each.place for each in find_in_outputs(inputs, {**outputs, name: left}, optimized=False)} == {name}


@pytest.mark.parametrize(
    ("changes", "partner", "findings"),
    [
        (["a1", None, "b2"], ["x0"], 0),
        (["a1", "b2"], ["x0"], 1),
        (["a1", "b2", None], ["x0"], 1),
        (["a1", "b1"], ["x0", None], 0),
        (["a1", "b2"], ["x0", None], 1),
        (["a1"], ["x0", None], 1),
        (["a1", None], ["x0", None], 1),
        (["a1", "b1", None], ["x0", None], 1),
    ],
)
def test_an_inner_join_keeps_a_result_only_if_the_answer_that_unsets_it_was_outrun(
    changes: list[str | None], partner: list[str | None], findings: int
) -> None:
    """A change of the row may outrun it, as in Kafka Streams, unless the change has an answer of its own."""
    table, other = (
        [Row(key, None if each is None else each.encode(), 0, 0, at) for at, each in enumerate(values)]
        for key, values in ((b"k", changes), (b"k1", partner))
    )
    results = [Row(b"k", b"a1/x0", 0, 0, 0)]
    assert len(list(wrong_sums("foreign-inner", results, {"table": table, "other": other}))) == findings


def test_a_changelog_that_differs_from_its_table_is_found(outputs: Rows) -> None:
    """The last record of each key is in both."""
    log = {"count": outputs["count"], "kv": []}
    assert find_in_changelogs_of_tables(log, outputs) == []
    [finding] = find_in_changelogs_of_tables({"count": _last_lost(outputs["count"])}, outputs)
    assert finding.place == "changelog of count"
