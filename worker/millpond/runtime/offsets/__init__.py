"""Committed offsets: their metadata, and the check that an answer of Kafka is up to date."""
