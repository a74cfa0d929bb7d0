"""The topology of the canary application: it counts records by key."""

from __future__ import annotations

import os

import millpond as mp

__all__ = ("TOPIC_PREFIX", "input_topic", "output_topic", "topology")

TOPIC_PREFIX = "CANARY_TOPIC_PREFIX"
"""The environment variable with the beginning of the topics' names."""


def input_topic(prefix: str) -> str:
    """Return the name of the input topic."""
    return f"{prefix}-words"


def output_topic(prefix: str) -> str:
    """Return the name of the output topic."""
    return f"{prefix}-counts"


def topology() -> mp.Topology:
    """Return the topology, for the topics that the environment names."""
    prefix = os.environ.get(TOPIC_PREFIX, "millpond-canary")
    builder = mp.StreamsBuilder()
    words = builder.stream(input_topic(prefix), key=mp.String, value=mp.String)
    counts = words.group_by_key().count(store="counts")
    counts.to_stream().to(output_topic(prefix), key=mp.String, value=mp.Long)
    return builder.build()
