"""The runtime of a worker: tasks, time, commits, ownership, restoring and the worker's loop."""
