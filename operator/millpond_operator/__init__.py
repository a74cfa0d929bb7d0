"""The control plane of millpond: assigns tasks to workers, and runs applications on Kubernetes."""
