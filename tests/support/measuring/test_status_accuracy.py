"""A condition is wrong only for the time in which the machine ran."""

from __future__ import annotations

from tests.support.measuring.status_accuracy import Moment, false_reports, flaps


def moment(at: float, ready: str, workers: int) -> Moment:
    return Moment(at, {"Ready": ready}, workers, wanted=2, tasks=4, copies=4, total=4, steady=True)


LATE = [moment(0.0, "True", 2), moment(1.0, "True", 1), moment(9.0, "True", 1), moment(9.5, "False", 1)]


def test_condition_that_is_wrong_for_longer_than_allowed_is_found() -> None:
    """The machine stood still for a part of the time only."""
    assert len(false_reports(LATE)) == 1
    assert len(false_reports(LATE, lambda begin, end: end - begin - 2)) == 1


def test_standstills_do_not_count_as_wrong() -> None:
    """For four of eight seconds the machine stood still."""
    assert false_reports(LATE, lambda begin, end: end - begin - 4) == []


def test_value_that_was_true_before_a_standstill_is_no_flap() -> None:
    """The condition reports what was true six seconds ago, five of which the machine stood still."""
    seen = [moment(0.0, "True", 1), moment(0.1, "True", 2), moment(6.0, "False", 2), moment(7.0, "True", 2)]
    assert len(flaps(seen)) == 1
    assert flaps(seen, lambda begin, end: end - begin - 5) == []
