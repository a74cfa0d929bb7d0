"""What a worker answers over HTTP: probes, metrics and queries."""
