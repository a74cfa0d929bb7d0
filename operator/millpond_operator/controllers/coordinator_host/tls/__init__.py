"""The certificate authority of the coordinator, and its certificates."""
