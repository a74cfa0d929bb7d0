"""The bodies of aggregations by key and session."""
