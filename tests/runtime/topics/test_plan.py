"""The plan: the topics and tasks of an application, from its topology and the existing topics."""

from __future__ import annotations

import millpond as mp
from millpond.runtime.topics.plan import make_plan


def _repartition_config(**settings: str) -> dict[str, str]:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).repartition(name="again").to("out")
    wished = {name.replace("_", "."): value for name, value in settings.items()}
    plan = make_plan(builder.build(), {"in": 2, "out": 2}, "app", topic_config=wished)
    (topic,) = plan.internal
    return dict(topic.config)


def test_repartition_topics_take_the_settings_for_internal_topics() -> None:
    """They override the defaults, as in Kafka Streams."""
    assert _repartition_config() == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
        "message.timestamp.type": "CreateTime",
    }
    changed = _repartition_config(segment_bytes="1048576", retention_ms="86400000", min_insync_replicas="2")
    assert changed == {
        "cleanup.policy": "delete", "retention.ms": "86400000", "segment.bytes": "1048576",
        "message.timestamp.type": "CreateTime", "min.insync.replicas": "2",
    }  # fmt: skip


def test_repartition_topics_are_never_compacted() -> None:
    """A setting meant for changelogs would lose records of equal keys, or their timestamps."""
    kept = _repartition_config(cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    assert (kept["cleanup.policy"], kept["message.timestamp.type"]) == ("delete", "CreateTime")


def _foreign_key_join(left: int, right: int, *, itself: bool = False) -> dict[str, int]:
    """The partition counts of internal topics, for tables with some numbers of partitions."""
    builder = mp.StreamsBuilder()
    table = builder.table("left", key=mp.String, value=mp.String, store="left")
    other = table if itself else builder.table("right", key=mp.String, value=mp.String, store="right")
    joined = table.join(other, lambda one, two: one + two, on=lambda value: value, name="fk")
    joined.group_by(lambda key, value: (value, value), value=mp.String, name="by").count(store="counts")
    plan = make_plan(builder.build(), {"left": left, "right": right}, "app")
    return {each.name.removeprefix("app-"): each.partitions for each in plan.internal}


def test_topics_of_a_foreign_key_join_have_as_many_partitions_as_the_tables_they_meet() -> None:
    """Each of the two topics is upstream of the other, so neither can be derived from the other."""
    for left, right in ((2, 5), (5, 2), (3, 3)):
        counts = _foreign_key_join(left, right)
        assert counts["fk-subscription-registration-topic"] == right
        assert counts["fk-subscription-response-topic"] == left
        assert counts["fk-subscription-store-changelog"] == right
        assert counts["by-repartition"] == max(left, right)
    assert set(_foreign_key_join(4, 7, itself=True).values()) == {4}
