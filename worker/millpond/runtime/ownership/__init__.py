"""Who owns a task: lookups in Kafka, claims and take-overs."""
