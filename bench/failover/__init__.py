"""The cost of faults: the pauses of the affected tasks in millpond and in Kafka Streams: `python -m bench.failover`."""
