"""The pages for people who come from elsewhere: their applications run."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import millpond as mp

_FOLDER = Path(__file__).parents[2] / "docs" / "migrating"


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (_FOLDER / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_application_of_quixstreams_sends_one_alert_for_each_hot_sensor_and_minute():
    names: dict[str, object] = {"__name__": "heat"}
    [program] = _blocks("from-quixstreams.md", "python")
    exec(compile(program, "from-quixstreams.md", "exec"), names)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with mp.testing.TopologyTestDriver(names["heat"]()) as driver:
        readings = driver.create_input_topic("readings", key=mp.String, value=mp.Json(names["Reading"]))
        windows = mp.TimeWindowedSerde(mp.String, timedelta(minutes=1))
        alerts = driver.create_output_topic("alerts", key=windows, value=mp.Json(int))
        for second, celsius in ((0, 95.0), (20, 80.0), (40, 99.0), (200, 91.0)):
            readings.pipe_input("s1", names["Reading"](celsius), start + timedelta(seconds=second))
        assert [(window.key, count) for window, count in alerts.read_key_values_to_list()] == [("s1", 2)]
