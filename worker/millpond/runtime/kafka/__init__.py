"""Kafka clients, and what the worker asks of brokers besides records."""
