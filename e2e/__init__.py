"""Tests of everything together on a real cluster: `make e2e`."""
