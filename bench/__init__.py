"""The comparison of millpond and Kafka Streams with the same work on the same broker: `python -m bench --help`."""
