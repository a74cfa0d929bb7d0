"""Faults of brokers: the pauses of an application on three brokers, beside those of a plain producer.

`python -m bench.broker_faults`.
"""
