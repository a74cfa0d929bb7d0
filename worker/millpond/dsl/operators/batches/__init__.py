"""Operators beyond Kafka Streams, which take the records that a task has at hand together."""
