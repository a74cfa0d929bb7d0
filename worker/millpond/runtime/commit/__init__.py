"""Commits: sending output records, committing offsets, and handling rejected records."""
