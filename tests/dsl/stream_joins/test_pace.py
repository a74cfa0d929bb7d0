"""Left and outer joins whose records come late, at several paces of the wall clock."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.testing import TopologyTestDriver

MS = timedelta(milliseconds=1)
END = "zz"
Record = tuple[str, str, str, int]


def results(records: list[Record], kind: str, windows: mp.JoinWindows, pace: timedelta) -> list[str]:
    """Return the results of records that come at a pace; at the end, stream time goes on far enough for all of them."""
    b = mp.StreamsBuilder()
    left, right = (b.stream(side, key=mp.String, value=mp.String) for side in ("left", "right"))
    join = getattr(left, kind)
    join(right, lambda a, c: f"{a}|{c}", windows, this_value=mp.String, other_value=mp.String).to(
        "out", key=mp.String, value=mp.String
    )
    ends: list[Record] = [("left", END, END, 10**6), ("left", END, END, 2 * 10**6), ("left", END, END, 3 * 10**6)]
    with TopologyTestDriver(b.build(), {"application.id": "app"}) as driver:
        inputs = {side: driver.create_input_topic(side, key=mp.String, value=mp.String) for side in ("left", "right")}
        for number, (side, key, value, timestamp) in enumerate([*records, *ends]):
            driver.advance_wall_clock_time(pace if number < len(records) else timedelta(seconds=2))
            inputs[side].pipe_input(key, value, timestamp)
        found = driver.create_output_topic("out", key=mp.String, value=mp.String).read_values_to_list()
    return [each for each in found if END not in each]


def some_records(pick: random.Random) -> list[Record]:
    now, records = 1000, []
    for number in range(60):
        now += pick.randrange(12)
        side = pick.choice(["left", "right"])
        late = pick.randrange(80) if pick.random() < 0.4 else 0
        records.append((side, pick.choice("abc"), f"{side[0]}{number}", now - late))
    return records


def test_every_record_is_joined_or_sent_without_a_partner_at_each_pace(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A fast replay, with fewer looks for closed windows, sends fewer results without a partner, and loses none."""
    monkeypatch.setattr("millpond.testing.driver.JOIN_EMIT_INTERVAL", "another setting")  # so: once a second
    pick = random.Random(seed)
    alone: dict[int, int] = {0: 0, 1500: 0}
    for _ in range(12):
        records, kind = some_records(pick), pick.choice(["left_join", "outer_join"])
        before, after, grace = pick.choice([0, 5, 20]), pick.choice([5, 20]), pick.choice([0, 5, 30])
        windows = mp.JoinWindows.of_time_difference_and_grace(after * MS, grace * MS).before(before * MS)
        wanted = {value for side, _, value, _ in records if side == "left" or kind == "outer_join"}
        pairs_at: dict[int, Any] = {}
        for pace, count in alone.items():
            found = [tuple(each.split("|")) for each in results(records, kind, windows, pace * MS)]
            without = [each for each in found if "None" in each]
            pairs_at[pace] = sorted(each for each in found if "None" not in each)
            alone[pace] = count + len(without)
            assert {part for each in found for part in each} >= wanted
            assert len(set(found)) == len(found), "each result is sent once"
        assert pairs_at[0] == pairs_at[1500], "the pairs do not depend on the pace"
    assert alone[0] <= alone[1500]
