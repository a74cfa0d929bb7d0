"""`millpond acls`: the rights that an application needs in Kafka."""
