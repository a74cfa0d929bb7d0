"""The same work on millpond and on Kafka Streams, against the same broker, in turns: `python -m bench --help`."""
