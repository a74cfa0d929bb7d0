"""`millpond reset`: `cluster` reads what exists, `plan` decides what a reset changes, `apply` changes it."""
