"""What a fault costs: the pause of every task it touches, on millpond and on Kafka Streams: `python -m bench.failover`."""
