"""Tests a topology without a broker: records in, records out, time under control."""

from __future__ import annotations

from .driver import TopologyTestDriver
from .topics import TestInputTopic, TestOutputTopic

__all__ = ("TestInputTopic", "TestOutputTopic", "TopologyTestDriver")
