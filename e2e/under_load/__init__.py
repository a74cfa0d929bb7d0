"""Load on a cluster: what the autoscaler does about it, and which alerts fire. `make worst-days` runs these tests."""
