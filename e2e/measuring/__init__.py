"""Measurements beside the tests: steady input, pauses of tasks, conditions over time, and the check of every record."""
