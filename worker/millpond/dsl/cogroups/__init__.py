"""Aggregates of several streams."""
