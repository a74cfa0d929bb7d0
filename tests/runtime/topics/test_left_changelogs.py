"""Changelogs that no store uses are found when a store begins without one."""

from __future__ import annotations

import millpond as mp
from millpond.runtime.topics.left_changelogs import left_changelogs
from millpond.runtime.topics.plan import make_plan


def test_a_new_store_and_an_unused_changelog_are_a_rename() -> None:
    """Topics of other prefixes, repartition topics and changelogs in use are not."""
    builder = mp.StreamsBuilder()
    views = builder.stream("views", key=mp.String, value=mp.String).group_by_key()
    views.count(store="kept")
    views.count(store="new")
    existing = dict.fromkeys(
        ("views", "shop-kept-changelog", "shop-old-changelog", "shop-old-repartition", "store-old-changelog"), 1
    )
    plan = make_plan(builder.build(), existing, "shop")
    assert left_changelogs(plan, existing, "shop") == (["shop-new-changelog"], ["shop-old-changelog"])
