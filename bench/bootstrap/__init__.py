"""The time in which a worker with an empty disk restores its state: by replay, by snapshot, and in Kafka Streams."""
