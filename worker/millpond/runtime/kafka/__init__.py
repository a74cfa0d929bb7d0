"""Kafka clients, and the worker's requests to brokers besides reading and writing records."""
