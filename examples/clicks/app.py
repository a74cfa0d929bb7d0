"""Visits of a site as sessions, and advertisements that were clicked, or not, within ten minutes."""

from datetime import datetime, timedelta

import millpond as mp


class View(mp.Struct):
    """A user looks at a page. The key is the user."""

    page: str
    at: datetime


class Impression(mp.Struct):
    """An advertisement is shown. The key is the impression."""

    ad: str
    page: str
    at: datetime


class Click(mp.Struct):
    """An impression is clicked. The key is the impression."""

    at: datetime


class Outcome(mp.Struct):
    ad: str
    page: str
    seconds: int | None  # from the impression to the click; None: not clicked


class Visit(mp.Struct):
    """Views of a user, of which each is at most half an hour after another one."""

    views: int
    landing: tuple[datetime, str]  # the first page
    exit: tuple[datetime, str]  # the last page


def outcome(impression: Impression, click: Click | None) -> Outcome:
    seconds = None if click is None else int((click.at - impression.at).total_seconds())
    return Outcome(impression.ad, impression.page, seconds)


def visit(view: View) -> Visit:
    seen = (view.at, view.page)
    return Visit(1, landing=seen, exit=seen)


def combine(one: Visit, other: Visit) -> Visit:
    """Combine two parts of a visit, in any order: late views come after later ones, and join two visits to one."""
    return Visit(one.views + other.views, min(one.landing, other.landing), max(one.exit, other.exit))


def clicks() -> mp.Topology:
    builder = mp.StreamsBuilder()

    impressions = builder.stream(
        "impressions", key=mp.String, value=mp.Json(Impression), timestamp=lambda impression: impression.at
    )
    clicked = builder.stream("clicks", key=mp.String, value=mp.Json(Click), timestamp=lambda click: click.at)
    within = mp.JoinWindows.of_time_difference_and_grace(timedelta(minutes=10), timedelta(minutes=5))
    impressions.left_join(
        clicked,
        outcome,
        within.before(timedelta(0)),  # a click is never before its impression
        name="outcomes",
        store="outcomes",
    ).to("outcomes", key=mp.String, value=mp.Json(Outcome))

    (
        builder.stream("views", key=mp.String, value=mp.Json(View), timestamp=lambda view: view.at)
        .map_values(visit)
        .group_by_key(key=mp.String, value=mp.Json(Visit))
        .windowed_by(mp.SessionWindows(timedelta(minutes=30), grace=timedelta(minutes=5)))
        .reduce(combine, store="visits")
        .suppress(mp.until_window_closes(), name="ended-visits")
        .to_stream()
        .to("visits", key=mp.SessionWindowedSerde(mp.String), value=mp.Json(Visit))
    )
    return builder.build()
