"""Snapshots of state: when one is due, its Job, and what became of it."""
