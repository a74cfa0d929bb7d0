"""Inspection of state from outside of a worker: compare it with a snapshot, export it, show it."""
