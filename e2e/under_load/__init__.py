"""Load on a cluster: what the autoscaler does about it, and which alerts fire. `make e2e-load` runs these tests."""
