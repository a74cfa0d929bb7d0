"""`millpond reset`: `cluster` reads the state in Kafka, `plan` derives the changes, and `apply` makes them."""
