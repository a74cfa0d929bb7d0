"""The texts of a topology: of Kafka Streams, and as a flowchart."""
