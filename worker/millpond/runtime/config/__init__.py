"""The configuration of a worker: its settings, their sources and types, and the properties of the Kafka clients."""
