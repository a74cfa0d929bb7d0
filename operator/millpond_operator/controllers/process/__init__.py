"""The operator's process: leader election, the work queue, health and metrics."""
