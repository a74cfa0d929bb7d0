"""Tests of topologies without a broker: records in, records out, and time that the test controls."""

from __future__ import annotations

from .driver import TopologyTestDriver
from .topics import TestInputTopic, TestOutputTopic

__all__ = ("TestInputTopic", "TestOutputTopic", "TopologyTestDriver")
