"""Devices that go offline."""
