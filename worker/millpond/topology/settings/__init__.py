"""Settings that a topology is built or checked with."""
