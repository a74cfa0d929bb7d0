"""How long a worker with an empty disk needs for its state: by replay, by a snapshot, and Kafka Streams beside it."""
