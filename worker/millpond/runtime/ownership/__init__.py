"""Ownership of tasks: lookups in Kafka, claims and take-overs."""
