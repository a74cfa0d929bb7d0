"""What the DSL's operators do to records: one body per operator, each binding to a plain nested function."""
