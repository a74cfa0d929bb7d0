"""The operator as a process: leadership, the work queue, health and metrics."""
