"""The control plane of millpond: which worker runs which task, and the operator that puts it on Kubernetes."""
