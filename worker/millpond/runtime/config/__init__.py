"""The configuration of a worker: settings with their sources and types, and the properties of the Kafka clients."""
