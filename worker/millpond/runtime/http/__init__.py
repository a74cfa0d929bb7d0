"""The HTTP interface of a worker: probes, metrics and queries."""
