"""Joins of tables, compared with Kafka Streams': descriptions, results, and the bytes in internal topics."""
