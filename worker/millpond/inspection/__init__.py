"""Inspection of state from outside a worker: compares it with a snapshot, exports it, or shows it."""
