"""Tests of topologies without a broker: records in, records out, and time that the test controls."""

from __future__ import annotations

from .driver import TopologyTestDriver
from .mock_context import CapturedForward, CapturedPunctuator, MockProcessorContext
from .topics import TestInputTopic, TestOutputTopic

__all__ = (
    "CapturedForward",
    "CapturedPunctuator",
    "MockProcessorContext",
    "TestInputTopic",
    "TestOutputTopic",
    "TopologyTestDriver",
)
