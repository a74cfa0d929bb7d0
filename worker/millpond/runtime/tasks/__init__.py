"""The tasks of a worker: their life cycle, their stores, and the coordinator's assignment."""
