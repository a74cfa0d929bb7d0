"""What tracing costs a record."""
