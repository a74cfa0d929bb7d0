"""Where sources start without committed offsets (KIP-1106)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millpond.topology.settings.resets import age_of, parse_reset


@pytest.mark.parametrize(
    ("written", "age"),
    [
        ("by_duration:PT24H", timedelta(days=1)),
        ("by_duration:P7D", timedelta(days=7)),
        ("BY_DURATION:p1dt2h3m4.5s", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("by_duration: 90m", timedelta(minutes=90)),
        ("by_duration:PT0S", timedelta(0)),
        ("earliest", None),
        ("Latest", None),
        ("none", None),
    ],
)
def test_a_setting_has_the_age_that_kafka_gives_it(written: str, age: timedelta | None) -> None:
    """Durations are those of ISO 8601, or numbers with a unit."""
    assert age_of(parse_reset(written)) == age


@pytest.mark.parametrize(
    "written",
    [
        "newest",
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT-1H",
        "PT1H",
        "by_duration:PT99999999999999H",
    ],
)
def test_another_setting_is_rejected(written: str) -> None:
    """What is no policy and no duration raises."""
    with pytest.raises(ValueError, match=r"expected earliest|is not a duration|is too long"):
        parse_reset(written)
