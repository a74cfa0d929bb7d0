"""The bodies of joins of two tables."""
