"""The coordinator's certificate authority and its certificates."""
