"""The test of an installation on Kubernetes, which `helm test` runs: a small application and its StreamApp."""
