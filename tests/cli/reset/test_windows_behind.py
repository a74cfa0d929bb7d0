"""Which windows a replay through a repartition topic reaches out of order."""

from __future__ import annotations

from datetime import timedelta

import millpond as mp
from millpond.cli.reset.plan import windows_behind


def test_windows_and_sessions_behind_a_repartition_topic_are_named_and_no_others() -> None:
    """Those that read their input directly see it in the order of its partition."""
    builder = mp.StreamsBuilder()
    views = builder.stream("views", key=mp.String, value=mp.String)
    grouped = views.group_by(lambda _, page: page, key=mp.String, name="pages")
    grouped.windowed_by(mp.TimeWindows(timedelta(minutes=1))).count(store="per-minute")
    grouped.windowed_by(mp.SessionWindows(timedelta(minutes=1))).count(store="visits")
    grouped.count(store="in-all")
    views.group_by_key().windowed_by(mp.TimeWindows(timedelta(minutes=1))).count(store="of-users")
    assert windows_behind(builder.build()) == ["per-minute", "visits"]
