"""The worker: one process, one loop, and what it is put together from."""
