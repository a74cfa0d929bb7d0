"""End-to-end tests on a real cluster: `make e2e`."""
