"""Runs topologies: tasks, time, commit, ownership, restore and the worker's loop."""
