"""Stores of what waits for its time: changes held back by `suppress`, and records of joins with a grace period."""
