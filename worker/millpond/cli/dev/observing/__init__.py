"""What a session shows of its workers: from the coordinator, their metrics and logs, and Kafka."""
