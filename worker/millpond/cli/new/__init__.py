"""`millpond new`: the project of a new application."""
