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
